"""Sudoku as a mediocre player plays it: sees what a cell sees, and often chooses a cell that does not yet tell.

The noise lies in decisions (which cell, and which of the digits that are left for it), never in what is said of them.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.sudoku.claims import statement
from starpo.ragen.envs.sudoku.environment import Sudoku
from starpo.ragen.envs.sudoku.grid import digits_left
from starpo.ragen.envs.sudoku.placements import Placement


def demonstrate(environment: Sudoku, skill: float, rng: random.Random) -> Demonstration:
    """Place one digit. The environment is not stepped.

    The thought is like `cell 2 3 row 1 . 4 col . 2 . box 1 . 4 left 3`: row and column of the cell, what the other
    cells of its row, column and box hold, in order, and the digits that are left.

    Args:
        environment: Before the puzzle is solved.
        skill: Probability of placing the solution's digit, in a cell that tells it where there is one, and of mending
            a wrong one first. Otherwise cell and digit are drawn uniformly from what is left for blank cells.
        rng: The only source of chance.

    Returns:
        One placement; resigned where nothing is left for any blank cell and nothing can be mended.
    """
    assert not environment.is_success, "the puzzle is solved: there is nothing to decide"
    size, cells, solution = environment.settings.size, environment.cells, environment.puzzle.solution
    left = {cell: digits_left(cells, size, cell) for cell, given in enumerate(environment.puzzle.givens) if not given}
    right = [cell for cell in left if cells[cell] != solution[cell] and solution[cell] in left[cell]]
    blank = [cell for cell in left if not cells[cell] and left[cell]]
    if right and (rng.random() < skill or not blank):
        # A wrong digit before a blank cell, a cell with one digit left before one with more.
        cell = min(rng.sample(right, len(right)), key=lambda each: (not cells[each], len(left[each]) > 1))
        digit = solution[cell]
    elif blank:
        cell = rng.choice(blank)
        digit = rng.choice(left[cell])
    else:
        cell = rng.choice([each for each in left if not cells[each]])
        digit = solution[cell]
    row, column = divmod(cell, size)
    said = " ".join(f"{name} {what}" for name, what in statement(cells, size, cell).items())
    return Demonstration(
        f"cell {row + 1} {column + 1} {said}",
        (Placement(digit, row + 1, column + 1).action,),
        is_resigned=not right and not blank,
    )
