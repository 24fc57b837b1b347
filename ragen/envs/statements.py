"""Statements in free text about where things lie relative to the player, scored against a scene (VAGEN).

    text -> `read_statements` -> Statement: thing, vertical, horizontal
    observation -> an environment's scene -> Scene      Statements, Scene -> `f1` of each thing
    Scene -> `write_statements` -> text that states all of it

VAGEN uses a language model to convert text into this form. Here a grammar does it, so that the same text scores the
same everywhere without a model call. Text that the grammar cannot parse is not a statement: it has no effect on scores.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from starpo.ragen.envs.cells import Cell

Vertical = Literal["above", "below", "same"]
Horizontal = Literal["left", "right", "same"]
Relation = tuple[Vertical | None, Horizontal | None]
"""Position of a thing relative to the player, by row and by column; None if not stated."""

_SIDES: Mapping[str, tuple[int, Literal["above", "below", "left", "right"]]] = {
    **dict.fromkeys(("above", "up", "north"), (0, "above")),
    **dict.fromkeys(("below", "down", "south", "under", "beneath"), (0, "below")),
    **dict.fromkeys(("left", "west"), (1, "left")),
    **dict.fromkeys(("right", "east"), (1, "right")),
}
"""Word -> index of the half of a relation that it states, and its value."""
_OPPOSITES: Mapping[str | None, str] = {"above": "below", "below": "above", "left": "right", "right": "left"}
_ALIASES = {"goal": "target", "target": "goal", "crate": "box"}

_THINGS = ("box", "crate", "target", "goal", "hole")
_THING = "|".join((*_THINGS, "player"))
_IS = r"(?:is|lies|sits|stands|will be|will lie|would be)(?: now| then| still)?(?: located| positioned| currently)?"
_STEPS = (
    r"(?:(?:\d{1,2}|an?|one|two|three|four|five|six|seven|eight|nine) (?:step|cell|tile|square|space|row|column)s? )?"
)
_SIDE = rf"{_STEPS}(?:(?:to|on) the )?(?:{'|'.join(_SIDES)})(?: side)?"
_SIDED = re.compile(
    rf"\b(?P<what>{_THING}) {_IS} (?P<directly>(?:directly|immediately|exactly|straight|right) )?(?P<one>{_SIDE})"
    rf"(?:(?:,? and |, |-| )(?P<two>{_SIDE}))?(?: of| from)? (?:the )?(?P<other>{_THING}|me|you)\b"
    r"(?:,? (?:and )?(?:in|on) the same (?P<line>row|column)\b)?"
)
_ALIGNED = re.compile(
    rf"\b(?P<what>{_THING}) {_IS} (?:in|on|at) the same (?P<line>row|column|cell|place|position|square|tile) as "
    rf"(?:the )?(?:player|me|you)\b(?:,? (?:and )?(?P<one>{_SIDE})\b)?"
)
_SIDE_WORD = re.compile("|".join(_SIDES))


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        thing: Its subject, as the text names it: box, crate, target, goal or hole.
        relation: Position of the thing relative to the player.
    """

    thing: str
    relation: Relation


@dataclass(frozen=True)
class Scene:
    """Positions of the player and of things.

    Attributes:
        player: The player's cell.
        things: Name -> the cells of all things of that name; empty if there are currently none.
    """

    player: Cell
    things: Mapping[str, Sequence[Cell]]

    def relations(self, thing: str) -> list[tuple[Vertical, Horizontal]]:
        """Return the position of each such thing relative to the player."""
        return [_relation(self.player, cell) for cell in self.things[thing]]

    def stated_relations(self, thing: str, statements: Sequence[Statement]) -> list[Relation]:
        """Return the relations stated of a thing, also under a synonym that names nothing else in this scene."""
        return [statement.relation for statement in statements if self._meant(statement.thing) == thing]

    def _meant(self, word: str) -> str | None:
        return word if word in self.things else _ALIASES.get(word)


def read_statements(text: str) -> list[Statement]:
    """Parse the statements of a text in two passes: `box is above the player`, then `box is in the same row as me`.

    A half that is not stated is None: "above the player" leaves the column open. "directly above" and "above the
    player in the same column" state both halves. A half that is stated twice ("above and below") is None too.
    Statements about the player relative to a thing are inverted; relations between two things are ignored.
    """
    text = re.sub(r"\s+", " ", text.lower())
    statements = []
    for match in _SIDED.finditer(text):
        what, other = match["what"], match["other"]
        if (what == "player") == (other in ("player", "me", "you")):
            continue
        relation = _sided(match["one"], match["two"], match["line"], is_exact=bool(match["directly"]))
        statements.append(Statement(other, _turned(relation)) if what == "player" else Statement(what, relation))
    for match in _ALIGNED.finditer(text):
        if match["what"] != "player":
            statements.append(Statement(match["what"], _aligned(match["line"], match["one"])))
    return statements


def write_statements(scene: Scene) -> str:
    """Write all true statements about a scene, in the prompt's wording and the scene's order; `score` gives it 1."""
    return "; ".join(_statement(thing, relation) for thing in scene.things for relation in scene.relations(thing))


def all_statements() -> str:
    """Return every statement that `write_statements` can write, to build a tokenizer's vocabulary."""
    vertical: tuple[Vertical, ...] = ("above", "below", "same")
    horizontal: tuple[Horizontal, ...] = ("left", "right", "same")
    statements = product(_THINGS, product(vertical, horizontal))
    return "; ".join(_statement(thing, relation) for thing, relation in statements)


def f1(stated: Sequence[Relation], true: Sequence[Relation]) -> float:
    """F1 of the relations stated of a thing; a match must be exact in both halves (VAGEN, state rewards).

    `2 * matches / (len(stated) + len(true))`, counted with multiplicity. Stating more distinct relations than there are
    things is a contradiction and scores 0.

    Returns:
        In [0, 1]; 0 if nothing is stated or there is no such thing.
    """
    if not stated or not true or len(set(stated)) > len(true):
        return 0.0
    matches = (Counter(stated) & Counter(true)).total()
    return 2 * matches / (len(stated) + len(true))


def score(statements: Sequence[Statement], scene: Scene, weights: Mapping[str, float]) -> float:
    """Weighted mean of `f1` over the things of a scene, without things that are neither present nor mentioned.

    Args:
        statements: From `read_statements`.
        scene: Ground truth.
        weights: Thing -> weight; 0 for things not listed. Empty: equal weights.

    Returns:
        In [0, 1]; 0 if no thing has a weight.
    """
    total = weight_sum = 0.0
    for thing in scene.things:
        stated, true = scene.stated_relations(thing, statements), scene.relations(thing)
        if stated or true:
            weight = weights.get(thing, 0.0) if weights else 1.0
            total += weight * f1(stated, true)
            weight_sum += weight
    return total / weight_sum if weight_sum else 0.0


def _statement(thing: str, relation: tuple[Vertical, Horizontal]) -> str:
    match relation:
        case "same", "same":
            where = "in the same cell as"
        case "same", side:
            where = f"directly to the {side} of"
        case side, "same":
            where = f"directly {side}"
        case vertical, side:
            where = f"{vertical} and to the {side} of"
    return f"the {thing} is {where} the player"


def _relation(player: Cell, cell: Cell) -> tuple[Vertical, Horizontal]:
    (row, column), (player_row, player_column) = cell, player
    return (
        "above" if row < player_row else "below" if row > player_row else "same",
        "left" if column < player_column else "right" if column > player_column else "same",
    )


def _sided(one: str, two: str | None, line: str | None, *, is_exact: bool) -> Relation:
    halves: list[list[str]] = [[], []]
    for side in filter(None, (one, two)):
        word = _SIDE_WORD.search(side)
        assert word is not None, side
        half, meaning = _SIDES[word[0]]
        halves[half].append(meaning)
    if line is not None:
        halves[0 if line == "row" else 1].append("same")
    elif is_exact and two is None:
        halves[1 if halves[0] else 0].append("same")
    return _as_relation(*(half[0] if len(half) == 1 else None for half in halves))


def _aligned(line: str, side: str | None) -> Relation:
    if line not in ("row", "column"):
        return ("same", "same")
    if side is None:
        return ("same", None) if line == "row" else (None, "same")
    return _sided(side, None, line, is_exact=False)


def _turned(relation: Relation) -> Relation:
    return _as_relation(*(_OPPOSITES.get(half, half) for half in relation))


def _as_relation(vertical: str | None, horizontal: str | None) -> Relation:
    return vertical, horizontal  # type: ignore[return-value]
