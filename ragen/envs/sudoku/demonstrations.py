"""Mediocre demonstrator for Sudoku that reads a cell's peers correctly but often picks an undetermined cell.

The noise is in the decisions (which cell, and which of the digits left for it), never in the statements about them.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.sudoku.environment import Sudoku
from starpo.ragen.envs.sudoku.grid import digits_left, units
from starpo.ragen.envs.sudoku.placements import Placement


def demonstrate(environment: Sudoku, skill: float, rng: random.Random) -> Demonstration:
    """Place one digit. The environment is not stepped.

    The reasoning is like `cell 2 3 row 1 . 4 col . 2 . box 1 . 4 left 3`: row and column of the cell, the contents of
    the other cells of its row, column and box, in order, and the digits that are left.

    Args:
        environment: Environment before the puzzle is solved.
        skill: Probability of placing the solution's digit: first in cells that hold a wrong digit, then in those with
            a single digit left. Otherwise a blank cell is drawn uniformly, then one of the digits left for it.
        rng: The only source of randomness.

    Returns:
        One placement; resigned if no blank cell has a digit left and no wrong digit can be corrected.
    """
    assert not environment.is_success, "the puzzle is solved: there is nothing to decide"
    size, cells, solution = environment.settings.size, environment.cells, environment.puzzle.solution
    left = {cell: digits_left(cells, size, cell) for cell, given in enumerate(environment.puzzle.givens) if not given}
    right = [cell for cell in left if cells[cell] != solution[cell] and solution[cell] in left[cell]]
    blank = [cell for cell in left if not cells[cell] and left[cell]]
    if right and (rng.random() < skill or not blank):
        # Wrong digits before blank cells, cells with one digit left before those with more.
        cell = min(rng.sample(right, len(right)), key=lambda each: (not cells[each], len(left[each]) > 1))
        digit = solution[cell]
    elif blank:
        cell = rng.choice(blank)
        digit = rng.choice(left[cell])
    else:
        cell = rng.choice([each for each in left if not cells[each]])
        digit = solution[cell]
    row, column = divmod(cell, size)
    in_row, in_column, in_box = (" ".join(str(cells[peer] or ".") for peer in unit) for unit in units(size)[cell])
    options = " ".join(map(str, digits_left(cells, size, cell))) or "none"
    return Demonstration(
        f"cell {row + 1} {column + 1} row {in_row} col {in_column} box {in_box} left {options}",
        (Placement(digit, row + 1, column + 1).action,),
        is_resigned=not right and not blank,
    )
