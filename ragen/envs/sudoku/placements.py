"""The grammar of Sudoku's actions: a digit in a cell, in either of two forms (RAGEN-2, environments).

place 5 at row 2 col 3        2,3,5
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from starpo.ragen.envs.grammar import Grammar

_FORMS = (
    re.compile(r"place (?P<digit>\d{1,2}) at row (?P<row>\d{1,2}) col (?P<column>\d{1,2})", re.IGNORECASE),
    re.compile(r"(?P<row>\d{1,2}) ?, ?(?P<column>\d{1,2}) ?, ?(?P<digit>\d{1,2})"),
)
_MAX_CHARS = 100
_BLANKS = re.compile(r"\s+")


class Placement(NamedTuple):
    """A digit with its row and column, all counted from 1."""

    digit: int
    row: int
    column: int

    @property
    def action(self) -> str:
        """The canonical spelling."""
        return f"place {self.digit} at row {self.row} col {self.column}"


@dataclass(frozen=True)
class Placements(Grammar):
    """Grammar of all placements on a grid, regardless of its contents.

    Attributes:
        size: Size of the grid; the largest digit, row and column.
    """

    size: int

    def read(self, action: str) -> str | None:
        """Return `place <digit> at row <r> col <c>` for either form."""
        placement = self.placement(action)
        return placement.action if placement else None

    def placement(self, action: str) -> Placement | None:
        """Parse a placement in either form; None if it is invalid."""
        if len(action) > _MAX_CHARS:
            return None
        text = _BLANKS.sub(" ", action.strip())
        for form in _FORMS:
            if match := form.fullmatch(text):
                placement = Placement(int(match["digit"]), int(match["row"]), int(match["column"]))
                return placement if all(1 <= number <= self.size for number in placement) else None
        return None

    def describe(self) -> str:
        """Return both forms and an example."""
        return (
            "An action has the form: place <digit> at row <r> col <c>, or <r>,<c>,<digit>\n"
            f"For example: {Placement(1, 2, self.size).action}"
        )
