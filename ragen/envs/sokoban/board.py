"""`Board`: a Sokoban position, its transition function, and the vocabularies in which it is written.

Independent of rewards, prompts and episodes. Rooms, solver, demonstrations and environment all use boards.

    text or generator -> Board -> Board.after(action) -> Board -> text
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from starpo.ragen.core.errors import EnvironmentFault

ACTIONS = ("Up", "Down", "Left", "Right")
"""In gym-sokoban's order of its four push actions, which walk if there is nothing to push."""


class Symbols(NamedTuple):
    """One character for each possible content of a cell (RAGEN, environments)."""

    wall: str
    empty: str
    target: str
    box_on_target: str
    box: str
    player: str
    player_on_target: str


VOCABULARIES: Mapping[str, Symbols] = {
    "default": Symbols("#", "_", "O", "√", "X", "P", "S"),
    "new": Symbols("W", ".", "G", "C", "B", "A", "@"),
}
"""The paper's symbols, and its NewVocab."""


def offsets(width: int) -> dict[str, int]:
    """Return the offset of each action in cell numbers on a board of this width."""
    return {"Up": -width, "Down": width, "Left": -1, "Right": 1}


@dataclass(frozen=True, slots=True)
class Board:
    """A position. Cells are numbered row by row: row * width + column, zero-based.

    The outermost rows and columns are walls, so that all neighbours of a floor cell are on the board.
    """

    height: int
    width: int
    floor: frozenset[int]
    """Cells that are not walls, including those with a target, a box or the player."""
    targets: frozenset[int]
    boxes: frozenset[int]
    player: int

    @property
    def is_solved(self) -> bool:
        """Whether every box is on a target."""
        return self.boxes == self.targets

    @property
    def num_boxes_on_target(self) -> int:
        """Number of boxes on a target."""
        return len(self.boxes & self.targets)

    def after(self, action: str) -> "Board":
        """Return the position after one action; the same board if the way is blocked.

        The player steps onto free floor, or pushes one box one cell onto free floor. It never pulls.
        """
        offset = offsets(self.width)[action]
        ahead, beyond = self.player + offset, self.player + 2 * offset
        if ahead in self.boxes:
            if beyond not in self.floor or beyond in self.boxes:
                return self
            return replace(self, player=ahead, boxes=(self.boxes - {ahead}) | {beyond})
        return replace(self, player=ahead) if ahead in self.floor else self

    def coordinates(self, cell: int) -> tuple[int, int]:
        """Return row and column of a cell, zero-based from the top left."""
        return divmod(cell, self.width)

    def to_text(self, symbols: Symbols = VOCABULARIES["default"]) -> str:
        """Write one line per row, one symbol per cell; equal texts mean equal positions."""
        cells = [symbols.empty if cell in self.floor else symbols.wall for cell in range(self.height * self.width)]
        for cell in self.targets:
            cells[cell] = symbols.target
        for cell in self.boxes:
            cells[cell] = symbols.box_on_target if cell in self.targets else symbols.box
        cells[self.player] = symbols.player_on_target if self.player in self.targets else symbols.player
        return "\n".join("".join(cells[row : row + self.width]) for row in range(0, len(cells), self.width))

    @classmethod
    def from_text(cls, text: str, symbols: Symbols = VOCABULARIES["default"]) -> "Board":
        """Parse the output of `to_text`.

        Raises:
            EnvironmentFault: If rows differ in length, a symbol is unknown, there is not exactly one player, boxes and
                targets differ in number, or the border is not entirely wall.
        """
        rows = text.splitlines()
        if len({len(row) for row in rows}) != 1:
            raise EnvironmentFault(f"a Sokoban room needs rows of one length, found {[len(row) for row in rows]}")
        if unknown := set("".join(rows)) - set(symbols):
            raise EnvironmentFault(f"a Sokoban room is written in {' '.join(symbols)}, found also {sorted(unknown)}")
        height, width = len(rows), len(rows[0])

        def where(*kinds: str) -> frozenset[int]:
            return frozenset(cell for cell, symbol in enumerate("".join(rows)) if symbol in kinds)

        players = where(symbols.player, symbols.player_on_target)
        boxes = where(symbols.box, symbols.box_on_target)
        targets = where(symbols.target, symbols.box_on_target, symbols.player_on_target)
        floor = frozenset(range(height * width)) - where(symbols.wall)
        if len(players) != 1 or len(boxes) != len(targets):
            raise EnvironmentFault(
                "a Sokoban room needs one player and as many boxes as targets, "
                f"found {len(players)} players, {len(boxes)} boxes, {len(targets)} targets"
            )
        if any(row in (0, height - 1) or col in (0, width - 1) for row, col in (divmod(c, width) for c in floor)):
            raise EnvironmentFault("a Sokoban room needs walls all around its border")
        return cls(height, width, floor, targets, boxes, min(players))
