"""Sudoku solver: backtracking on the cell with the fewest digits left; peers' digits are bit masks."""

from collections.abc import Iterator, Sequence
from itertools import islice

from starpo.ragen.envs.sudoku.grid import Grid, peers


def solutions(grid: Sequence[int], size: int, limit: int = 2) -> list[Grid]:
    """Find up to `limit` solutions of a grid; two suffice to show that it is not unique.

    Args:
        grid: Digits and blanks [size * size]; a grid with the same digit in two peers has no solution.
        size: 4, 9 or 16.
        limit: Maximum number of solutions to find, at least 1.
    """
    peer_masks = [0] * len(grid)
    for cell, digit in enumerate(grid):
        for peer in peers(size)[cell] if digit else ():
            peer_masks[peer] |= 1 << digit
    if any(digit and peer_masks[cell] >> digit & 1 for cell, digit in enumerate(grid)):
        return []
    return list(islice(_search(list(grid), peer_masks, size), limit))


def _search(cells: list[int], peer_masks: list[int], size: int) -> Iterator[Grid]:
    """Fill the blanks in place; `peer_masks` has a bit mask of the peers' digits for each cell."""
    blanks = [cell for cell, digit in enumerate(cells) if not digit]
    if not blanks:
        yield tuple(cells)
        return
    cell = max(blanks, key=lambda blank: peer_masks[blank].bit_count())
    for digit in range(1, size + 1):
        bit = 1 << digit
        if peer_masks[cell] & bit:
            continue
        marked = [peer for peer in peers(size)[cell] if not peer_masks[peer] & bit]
        cells[cell] = digit
        for peer in marked:
            peer_masks[peer] |= bit
        yield from _search(cells, peer_masks, size)
        cells[cell] = 0
        for peer in marked:
            peer_masks[peer] &= ~bit
