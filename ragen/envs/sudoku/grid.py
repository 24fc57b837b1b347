"""Sudoku grids: the peers of a cell, and the digits left for it.

A grid is a tuple of digits, row by row from the top left; 0 is a blank cell.
"""

from collections.abc import Sequence
from functools import cache
from math import isqrt

Grid = tuple[int, ...]


@cache
def units(size: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]:
    """Return, by cell, the other cells of its row, of its column and of its box.

    Args:
        size: Number of rows, of columns, of boxes and of digits; a square number.
    """
    box = isqrt(size)
    assert box * box == size, f"{size} is no square number"
    cells = range(size * size)

    def others(cell: int, key: Sequence[int]) -> tuple[int, ...]:
        return tuple(other for other in cells if key[other] == key[cell] and other != cell)

    rows = [cell // size for cell in cells]
    columns = [cell % size for cell in cells]
    boxes = [row // box * box + column // box for row, column in zip(rows, columns, strict=True)]
    return tuple((others(cell, rows), others(cell, columns), others(cell, boxes)) for cell in cells)


@cache
def peers(size: int) -> tuple[tuple[int, ...], ...]:
    """Return, by cell, all cells that must not hold the same digit, in order."""
    return tuple(tuple(sorted({*row, *column, *box})) for row, column, box in units(size))


def digits_left(grid: Sequence[int], size: int, cell: int) -> list[int]:
    """Return the digits that no peer of the cell holds, in order, regardless of the cell's own digit."""
    peer_digits = {grid[peer] for peer in peers(size)[cell]}
    return [digit for digit in range(1, size + 1) if digit not in peer_digits]
