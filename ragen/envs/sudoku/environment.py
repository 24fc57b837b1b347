"""Sudoku (RAGEN-2, environments): fill a grid so that no row, column or box holds a digit twice.

seed -> puzzle with a unique solution
"""

import random
from hashlib import blake2b
from math import isqrt
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.sudoku.grid import digits_left
from starpo.ragen.envs.sudoku.placements import Placement, Placements
from starpo.ragen.envs.sudoku.puzzles import Puzzle, draw_puzzle

SOLVED_REWARD, RIGHT_REWARD, LEGAL_REWARD, REFUSED_REWARD = 10.0, 1.0, 0.5, -0.1
_MOST_BLANKS = {4: 10, 9: 54, 16: 110}


class SudokuSettings(EnvironmentSettings):
    """Size of the grid, number of blank cells, and form of observations."""

    type: Literal["sudoku"] = "sudoku"
    size: Literal[4, 9, 16] = 4
    """Number of rows, of columns, of boxes and of digits."""
    num_blanks: int = Field(6, ge=1, le=110)
    """Blank cells at the start; the solution is unique. The public code blanks 6, 7 or 10 of 16 cells, and 45, 51 or 57
    of 81. At most 10 of 16, 54 of 81 and 110 of 256."""
    observation: Literal["grid", "compact"] = "grid"
    """'grid': with lines between the boxes. 'compact': the cells alone."""
    should_list_admissible: bool = False
    """Whether the observation ends with the currently admissible placements: digits that no other cell of the row, the
    column and the box holds, in cells that were blank at the start."""

    @model_validator(mode="after")
    def _puzzles_can_have_so_many_blanks(self) -> "SudokuSettings":
        most = _MOST_BLANKS[self.size]
        if self.num_blanks > most:
            raise ValueError(
                f"num_blanks = {self.num_blanks} is too many for size = {self.size}: puzzles with one solution and "
                f"more than {most} blanks are rare; lower num_blanks"
            )
        return self


class Sudoku(Environment[SudokuSettings]):
    """Environment with one puzzle per episode, until it is solved."""

    settings_type = SudokuSettings
    action_cost: ClassVar[float] = REFUSED_REWARD
    demonstrator: ClassVar[str] = "starpo.ragen.envs.sudoku.demonstrations:demonstrate"

    def __init__(self, settings: SudokuSettings) -> None:
        super().__init__(settings)
        self._puzzle: Puzzle | None = None
        self._cells: list[int] = []
        self._paid: list[float] = []

    @property
    def puzzle(self) -> Puzzle:
        """The givens and the solution."""
        if self._puzzle is None:
            raise EnvironmentFault("sudoku: there is no puzzle before the first reset; call reset")
        return self._puzzle

    @property
    def cells(self) -> tuple[int, ...]:
        """Current digits, row by row; 0 is blank. [size * size]"""
        return tuple(self._cells)

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Draw a puzzle."""
        self._puzzle = draw_puzzle(self.settings.size, self.settings.num_blanks, seed)
        self._cells = list(self._puzzle.givens)
        self._paid = [0.0] * len(self._cells)
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Place a digit.

        Args:
            action: Placement in the canonical spelling of `grammar`.

        Returns:
            As `Environment.step`. The reward is 10 for solving the puzzle, 1 for the solution's digit and 0.5 for
            another digit that does not occur in the row, the column and the box; a cell that has paid before pays only
            the difference. A digit that does occur there, that the cell holds already, or that is placed on a given
            changes nothing and pays -0.1.
        """
        puzzle = self.puzzle
        placement = self.grammar.placement(action)
        if placement is None or placement.action != action:
            raise EnvironmentFault(
                f"sudoku: '{action}' is not a placement on a grid of size {self.settings.size}, such as "
                f"'{Placement(1, 1, 2).action}'"
            )
        if self.is_success:
            raise EnvironmentFault("sudoku: the episode has ended with the solved puzzle; call reset")
        cell = self._cell(placement)
        is_right = puzzle.solution[cell] == placement.digit
        is_effective = self._is_admissible(placement)
        reward = REFUSED_REWARD
        if is_effective:
            self._cells[cell] = placement.digit
            worth = RIGHT_REWARD if is_right else LEGAL_REWARD
            reward = SOLVED_REWARD if self.is_success else max(worth - self._paid[cell], 0.0)
            self._paid[cell] = max(worth, self._paid[cell])
        info: Info = {"effective": is_effective, "is_success": self.is_success, "is_right": is_effective and is_right}
        return self.render(), reward, self.is_success, False, info

    @property
    def grammar(self) -> Placements:
        """Grammar of all placements, in two forms."""
        return Placements(self.settings.size)

    @property
    def actions(self) -> tuple[str, ...]:
        """Placements that would currently change the grid, cell by cell."""
        size = self.settings.size
        return tuple(
            Placement(digit, cell // size + 1, cell % size + 1).action
            for cell, given in enumerate(self.puzzle.givens)
            if not given
            for digit in digits_left(self._cells, size, cell)
            if digit != self._cells[cell]
        )

    def random_action(self, rng: random.Random) -> str:
        """Return a random placement, admissible or not."""
        return Placement(*(rng.randint(1, self.settings.size) for _ in range(3))).action

    @property
    def is_success(self) -> bool:
        """Whether the grid is the solution."""
        return self._puzzle is not None and self.cells == self._puzzle.solution

    def rules(self) -> str:
        """Return the task description."""
        size, box = self.settings.size, isqrt(self.settings.size)
        return "\n".join(
            [
                f"You are solving a {size} x {size} Sudoku with {box} x {box} boxes. Fill the blank cells so that "
                f"every row, column and box contains each of the digits 1 to {size} exactly once. The solution is "
                "unique.",
                "Rows and columns are numbered from 1, starting at the top left. A dot is a blank cell, and * marks a "
                "digit that you placed, which you may replace.",
                f"Solving the puzzle earns {SOLVED_REWARD:g}. Placing the correct digit earns {RIGHT_REWARD:g}, and a "
                f"wrong one that is not yet in its row, column or box earns {LEGAL_REWARD:g}; a cell earns at most "
                f"{RIGHT_REWARD:g} in total. Any other action changes nothing and costs {-REFUSED_REWARD:g}.",
            ]
        )

    def state_digest(self) -> str:
        """Return a digest of the givens, the digits, and the reward that each cell has paid."""
        state = (self.puzzle.givens, self.cells, self._paid)
        return blake2b(repr(state).encode(), digest_size=8).hexdigest()

    def render(self) -> str:
        """Return the observation in the configured form, with the admissible placements if configured."""
        size = self.settings.size
        width = len(str(size))
        marks = [
            f"{digit or '.':>{width}}{'*' if digit and not given else ''}"
            for digit, given in zip(self._cells, self.puzzle.givens, strict=True)
        ]
        rows = [marks[top : top + size] for top in range(0, size * size, size)]
        lines = [" ".join(row) for row in rows] if self.settings.observation == "compact" else _ruled(rows, width)
        if self.settings.should_list_admissible:
            lines.append(f"Admissible: {', '.join(self.actions)}")
        return "\n".join(lines)

    def _cell(self, placement: Placement) -> int:
        return (placement.row - 1) * self.settings.size + placement.column - 1

    def _is_admissible(self, placement: Placement) -> bool:
        cell = self._cell(placement)
        is_free = not self.puzzle.givens[cell] and self._cells[cell] != placement.digit
        return is_free and placement.digit in digits_left(self._cells, self.settings.size, cell)


def _ruled(rows: list[list[str]], width: int) -> list[str]:
    """Format rows with lines between the boxes; every cell has room for the mark of a placed digit."""
    box = isqrt(len(rows))
    parts = range(0, len(rows), box)
    lines: list[str] = []
    for number, row in enumerate(rows):
        if number and number % box == 0:
            lines.append("+".join("-" * (box * (width + 2)) for _ in parts))
        padded = [f"{mark:<{width + 1}}" for mark in row]
        lines.append("|".join(" ".join(padded[part : part + box]) + " " for part in parts).rstrip())
    return lines
