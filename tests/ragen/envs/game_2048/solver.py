"""A good player of 2048: expectimax over a few of its own moves. It is no bound, since nobody knows the best player."""

from starpo.ragen.envs.game_2048.board import NEW_TILES, Board, free_cells, moves, slide, with_tile

_FADING = 0.5


def best_action(board: Board, depth: int = 2) -> str:
    """The move of the highest expected worth after `depth` own moves; of equals the first of `ACTIONS`.

    W_1(b) = max_a worth(slide(b, a));  W_d(b) = max_a mean over free cells of sum_tile p(tile) W_{d-1}(b with tile).

    Args:
        board: On which a move is possible.
        depth: Own moves looked ahead, at least 1. 2 takes a few milliseconds.
    """
    assert depth >= 1, "a player that looks no move ahead has nothing to choose by"
    chosen = moves(board)
    assert chosen, "no move is possible: the game is over"
    return max(chosen, key=lambda action: _after(slide(board, action)[0], depth))


def worth(board: Board) -> float:
    """How far the tiles fall from one corner along a snake through the rows: sum over its cells of tile * 0.5^place.

    Few large tiles beside each other are worth more than many small ones of the same sum.
    """
    snake = [tile for row, tiles in enumerate(board) for tile in (tiles if row % 2 == 0 else tiles[::-1])]
    return sum(tile * _FADING**place for place, tile in enumerate(snake))


def _after(board: Board, depth: int) -> float:
    """The worth of a board that was just moved, before its new tile."""
    if depth == 1:
        return worth(board)
    cells = free_cells(board)
    total = 0.0
    for row, column in cells:
        for tile, probability in NEW_TILES:
            filled = with_tile(board, row, column, tile)
            following = (_after(slide(filled, action)[0], depth - 1) for action in moves(filled))
            total += probability * max(following, default=0.0)
    return total / len(cells)
