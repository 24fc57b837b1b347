"""Boards of 2048: moves, merges, free cells. All deterministic: the environment places new tiles.

A board is a tuple of rows of tiles; 0 is a free cell, every other tile is a power of two.
"""

from functools import lru_cache

SIZE = 4
"""Number of rows, and of columns."""
ACTIONS = ("Up", "Down", "Left", "Right")
NEW_TILES = ((2, 0.9), (4, 0.1))
"""(tile, probability) of the tile that appears after a move."""

Row = tuple[int, ...]
Board = tuple[Row, ...]


def slide(board: Board, action: str) -> tuple[Board, tuple[int, ...]]:
    """Push all tiles to one side; two equal tiles that meet merge into their sum, which does not merge again.

    Args:
        board: A board of any shape.
        action: One of `ACTIONS`.

    Returns:
        The board before a new tile appears, and the tiles created by merging. An unchanged board means that the move
        is not possible.
    """
    is_vertical, is_backward = action in ("Up", "Down"), action in ("Down", "Right")
    lines = tuple(zip(*board, strict=True)) if is_vertical else board
    merged: tuple[int, ...] = ()
    moved = []
    for line in lines:
        slid, made = _slide_line(line[::-1] if is_backward else line)
        moved.append(slid[::-1] if is_backward else slid)
        merged += made
    return tuple(zip(*moved, strict=True)) if is_vertical else tuple(moved), merged


def moves(board: Board) -> tuple[str, ...]:
    """Return the actions that change the board; empty if the game is over."""
    return tuple(action for action in ACTIONS if slide(board, action)[0] != board)


def free_cells(board: Board) -> list[tuple[int, int]]:
    """Return row and column of every free cell, row by row."""
    return [(row, column) for row, tiles in enumerate(board) for column, tile in enumerate(tiles) if tile == 0]


def with_tile(board: Board, row: int, column: int, tile: int) -> Board:
    """Return the board with the tile in one cell replaced."""
    tiles = board[row]
    return (*board[:row], (*tiles[:column], tile, *tiles[column + 1 :]), *board[row + 1 :])


def largest(board: Board) -> int:
    """Return the largest tile."""
    return max(map(max, board))


@lru_cache(65_536)
def _slide_line(line: Row) -> tuple[Row, tuple[int, ...]]:
    """Push a line towards its start; return the new line and the tiles created."""
    tiles = [tile for tile in line if tile]
    slid: list[int] = []
    made = []
    place = 0
    while place < len(tiles):
        tile = tiles[place]
        is_pair = place + 1 < len(tiles) and tiles[place + 1] == tile
        if is_pair:
            tile *= 2
            made.append(tile)
        slid.append(tile)
        place += 2 if is_pair else 1
    return (*slid, *[0] * (len(line) - len(slid))), tuple(made)
