"""The grammar of Sudoku's actions: a digit in a cell, said in either of two forms (RAGEN-2, environments).

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
    """A digit, and row and column from 1 as they are said."""

    digit: int
    row: int
    column: int

    @property
    def action(self) -> str:
        """The canonical spelling."""
        return f"place {self.digit} at row {self.row} col {self.column}"


@dataclass(frozen=True)
class Placements(Grammar):
    """All placements on a grid, whatever its cells hold.

    Attributes:
        size: Of the grid; no digit, row or column is larger.
    """

    size: int

    def read(self, said: str) -> str | None:
        """`place <digit> at row <r> col <c>`, whichever form it was said in."""
        placement = self.placement(said)
        return placement.action if placement else None

    def placement(self, said: str) -> Placement | None:
        """What is to be placed where; None: it is no action."""
        if len(said) > _MAX_CHARS:
            return None
        text = _BLANKS.sub(" ", said.strip())
        for form in _FORMS:
            if found := form.fullmatch(text):
                placement = Placement(int(found["digit"]), int(found["row"]), int(found["column"]))
                return placement if all(1 <= number <= self.size for number in placement) else None
        return None

    def told(self) -> str:
        """Both forms, and an example."""
        return (
            "An action has the form: place <digit> at row <r> col <c>, or <r>,<c>,<digit>\n"
            f"For example: {Placement(1, 2, self.size).action}"
        )
