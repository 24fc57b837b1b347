"""`Claim`: a statement about the board and its truth; also words for directions."""

import re
from dataclasses import dataclass

Cell = tuple[int, int]
"""Row and column, zero-based from the top left."""

NUMBER = r"\d{1,9}"
"""Numbers are limited to 9 digits: model output may be arbitrarily long, and `int` rejects more than 4300 digits."""

TERSE_DIRECTION = r"(?:up|down)(?: (?:left|right))?|left|right|here"
"""Directions as demonstrations write them."""

_SIDES = {
    "above": "up",
    "below": "down",
    "up": "up",
    "down": "down",
    "north": "up",
    "south": "down",
    "left": "left",
    "right": "right",
    "west": "left",
    "east": "right",
}
_IS = r"(?:is|lies|sits|stands)(?: located| positioned| currently)?"
_RELATION = re.compile(
    rf"\b(?P<what>player|box|target|goal) {_IS} (?P<directly>directly |right |immediately )?(?:to the )?"
    rf"(?P<side>{'|'.join(_SIDES)})(?: side)?(?: of| from)? "
    r"(?:the |my )?(?P<other>me|you|player|box|target|goal)\b",
    re.IGNORECASE,
)
_PLACE = re.compile(
    rf"\b(?P<what>player|box|target|goal) {_IS} at \(?(?P<row>{NUMBER}), ?(?P<column>{NUMBER})\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Claim:
    """One statement about the board.

    Attributes:
        about: Subject, such as `box from player`.
        said: The statement itself.
        is_true: Whether it holds on the board.
        truth: The correct value.
    """

    about: str
    said: str
    is_true: bool
    truth: str


def direction(start: Cell, end: Cell) -> str:
    """Return the direction from `start` to `end`, as demonstrations write it: 'down', 'up left', 'here'."""
    words = [*(["down"] if end[0] > start[0] else ["up"] if end[0] < start[0] else [])]
    words += ["right"] if end[1] > start[1] else ["left"] if end[1] < start[1] else []
    return " ".join(words) or "here"


def sentences(reasoning: str, things: dict[str, list[Cell]], *, has_coordinates: bool) -> list[Claim]:
    """Extract claims in plain English: `the box is above the player`, `the target is at (2, 3)`.

    Args:
        reasoning: The model's reasoning.
        things: player, box, target or goal -> their cells. With several of a kind, a claim holds if it does for any.
        has_coordinates: Whether the observation gives coordinates, which fixes their origin. Otherwise claims about
            coordinates are ignored.
    """
    claims = []
    for found in _RELATION.finditer(reasoning):
        what, other = found["what"].lower(), _YOURSELF.get(found["other"].lower(), found["other"].lower())
        if what == other or what not in things or other not in things:
            continue
        side = _SIDES[found["side"].lower()]
        pairs = [(start, end) for start in things[other] for end in things[what]]
        is_true = any(_lies(start, end, side, is_exact=bool(found["directly"])) for start, end in pairs)
        truth = " or ".join(sorted({direction(start, end) for start, end in pairs}))
        claims.append(Claim(f"{what} from {other}", found[0], is_true, truth))
    for found in _PLACE.finditer(reasoning) if has_coordinates else ():
        what = found["what"].lower()
        if what in things:
            cells = things[what]
            truth = " ".join(map(str, sorted(cells)))
            claims.append(
                Claim(f"place of {what}", found[0], (int(found["row"]), int(found["column"])) in cells, truth)
            )
    return claims


_YOURSELF = {"me": "player", "you": "player"}


def _lies(start: Cell, end: Cell, side: str, *, is_exact: bool) -> bool:
    """Whether `end` lies on this side of `start`; if `is_exact`, also in the same row or column."""
    words = direction(start, end)
    return words == side if is_exact else side in words.split()
