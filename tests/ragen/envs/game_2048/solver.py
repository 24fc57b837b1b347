"""Good player of 2048: expectimax over a few of its own moves. Not an upper bound: optimal play is unknown."""

from starpo.ragen.envs.game_2048.board import NEW_TILES, Board, free_cells, moves, slide, with_tile

_FADING = 0.5


def best_action(board: Board, depth: int = 2) -> str:
    """Return the move of the highest expected worth after `depth` own moves; ties go to the first of `ACTIONS`.

    W_1(b) = max_a worth(slide(b, a));  W_d(b) = max_a mean over free cells of sum_tile p(tile) W_{d-1}(b with tile).

    Args:
        board: A board with at least one possible move.
        depth: Number of own moves to look ahead, at least 1. 2 takes a few milliseconds.
    """
    assert depth >= 1, "a player that looks no move ahead has nothing to choose by"
    chosen = moves(board)
    assert chosen, "no move is possible: the game is over"
    return max(chosen, key=lambda action: _after(slide(board, action)[0], depth))


def worth(board: Board) -> float:
    """Weighted sum of the tiles along a snake through the rows from one corner: sum over its cells of tile * 0.5^place.

    A few large adjacent tiles are worth more than many small ones of the same sum.
    """
    snake = [tile for row, tiles in enumerate(board) for tile in (tiles if row % 2 == 0 else tiles[::-1])]
    return sum(tile * _FADING**place for place, tile in enumerate(snake))


def _after(board: Board, depth: int) -> float:
    """Expected worth of a board after a move, before the new tile appears."""
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
