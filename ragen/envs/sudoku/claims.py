"""Claims about a Sudoku: the contents of a cell's row, column and box, and the digits left for it."""

import re
from collections.abc import Sequence
from functools import lru_cache
from math import isqrt

from starpo.ragen.envs.claim import NUMBER, Claim
from starpo.ragen.envs.sudoku.grid import Grid, digits_left, units

_CELLS = r"(?:\.|\d+)(?: (?:\.|\d+))*"
_TERSE = re.compile(
    rf"cell (?P<r>{NUMBER}) (?P<c>{NUMBER}) row (?P<row>{_CELLS}) col (?P<col>{_CELLS}) box (?P<box>{_CELLS}) "
    r"left (?P<left>none|\d+(?: \d+)*)"
)
_MARK = re.compile(rf"\.|{NUMBER}\*?")
_SIZES = (4, 9, 16)


def claims(observation: str, reasoning: str) -> list[Claim]:
    """Return the checkable claims in the reasoning, in order; [] if observation or reasoning cannot be parsed."""
    grid, terse = read_grid(observation), _TERSE.fullmatch(reasoning.strip())
    if grid is None or terse is None:
        return []
    size = isqrt(len(grid))
    row, column = int(terse["r"]), int(terse["c"])
    if not (1 <= row <= size and 1 <= column <= size):
        return [Claim("cell", f"{row} {column}", False, f"rows and columns from 1 to {size}")]
    seen = statement(grid, size, (row - 1) * size + column - 1)
    return [
        Claim(f"{name} of cell", f"{name} {terse[name]}", terse[name] == truth, truth) for name, truth in seen.items()
    ]


def statement(grid: Sequence[int], size: int, cell: int) -> dict[str, str]:
    """Describe a cell: the other cells of its `row`, `col` and `box`, in order, and the digits `left` for it."""
    shown = (" ".join(str(grid[other] or ".") for other in unit) for unit in units(size)[cell])
    left = " ".join(map(str, digits_left(grid, size, cell))) or "none"
    return dict(zip(("row", "col", "box"), shown, strict=True)) | {"left": left}


@lru_cache(65_536)
def read_grid(observation: str) -> Grid | None:
    """Parse the digits of an observation in either form of `ragen.envs.sudoku.environment`; None if it is none."""
    board = observation.partition("\nAdmissible:")[0]
    lines = [line for line in board.splitlines() if not set(line) <= set("-+")]
    marks = " ".join(lines).replace("|", " ").split()
    if len(marks) not in [size * size for size in _SIZES] or not all(map(_MARK.fullmatch, marks)):
        return None
    return tuple(0 if mark == "." else int(mark.rstrip("*")) for mark in marks)
