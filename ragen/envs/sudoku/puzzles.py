"""Puzzles with a unique solution, from a seed.

seed -> a full grid -> cells blanked one by one while the solution stays unique -> Puzzle
"""

import random
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.sudoku.grid import Grid, digits_left
from starpo.ragen.envs.sudoku.solver import solutions

_MAX_DRAWS = 200


@dataclass(frozen=True)
class Puzzle:
    """The givens and their solution, [size * size] each."""

    givens: Grid
    solution: Grid


@lru_cache(256)  # the members of a group share their puzzle
def draw_puzzle(size: int, num_blanks: int, seed: int) -> Puzzle:
    """Draw full grids and blank their cells in random order, until one has `num_blanks` blanks and a unique solution.

    Args:
        size: 4, 9 or 16.
        num_blanks: Number of blank cells, at least 1.
        seed: The only source of randomness.

    Raises:
        EnvironmentFault: If none of 200 grids allows that many blanks.
    """
    rng = python_random(seed, "sudoku")
    for _ in range(_MAX_DRAWS):
        solution = full_grid(size, rng)
        givens, blanked = list(solution), 0
        for cell in rng.sample(range(size * size), size * size):
            if blanked == num_blanks:
                break
            givens[cell] = 0
            is_forced = len(digits_left(givens, size, cell)) == 1  # the usual case, which needs no search
            if is_forced or len(solutions(givens, size)) == 1:
                blanked += 1
            else:
                givens[cell] = solution[cell]
        if blanked == num_blanks:
            return Puzzle(tuple(givens), solution)
    raise EnvironmentFault(
        f"sudoku: none of {_MAX_DRAWS} grids of size {size} with num_blanks = {num_blanks} has one solution; lower "
        "num_blanks"
    )


def full_grid(size: int, rng: random.Random) -> Grid:
    """Draw a grid without blanks: a regular one whose bands, stacks, rows, columns and digits are shuffled.

    This avoids a search, which can take minutes on an empty 16 x 16 grid. Not every full grid can result.
    """
    box = isqrt(size)
    rows, columns = ([line for band in _shuffled(box, rng) for line in _lines(band, box, rng)] for _ in range(2))
    digits = _shuffled(size, rng)
    return tuple(digits[(row * box + row // box + column) % size] + 1 for row in rows for column in columns)


def _lines(band: int, box: int, rng: random.Random) -> list[int]:
    return [band * box + line for line in _shuffled(box, rng)]


def _shuffled(count: int, rng: random.Random) -> list[int]:
    return rng.sample(range(count), count)
