"""Plans: the last sequence of moves that free text announces.

I could go up, but I will push left and then go down twice. -> left, down, down
"""

import re

_SIDES = {"up": "up", "down": "down", "left": "left", "right": "right"} | {
    "north": "up",
    "south": "down",
    "west": "left",
    "east": "right",
}
_NUMBERS = {word: number for number, word in enumerate(("once", "twice", "thrice"), 1)} | {
    word: number for number, word in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight"), 1)
}
_TIMES = rf"(?: (?:(?:{'|'.join(_NUMBERS)}|[1-9]\d?)\b(?: times?\b)?))?"
_MOVE = rf"(?:{'|'.join(_SIDES)})\b{_TIMES}"
_GO = r"(?:go|move|push|walk|step|head|pushing|moving|going)(?: it| the box| back| further)?(?: to the)? "
_ANNOUNCED = r"(?:plan|actions?|moves?)(?: is:?| are:?|:)(?: to)? "
_AND = r"(?: ?\|\| ?|,? and then |,? then |,? and |, ?| -> ?)"
_PLAN = re.compile(rf"\b(?:{_ANNOUNCED}(?:{_GO})?|{_GO})(?P<moves>{_MOVE}(?:{_AND}(?:{_GO})?{_MOVE})*)")
_EACH = re.compile(rf"\b(?P<side>{'|'.join(_SIDES)})\b(?P<times>{_TIMES})")


def read_plan(text: str) -> tuple[str, ...]:
    """Return the moves of the last plan in a text, each up, down, left or right; empty if there is none.

    A plan is a verb such as go, move or push, or a word such as plan: or actions:, followed by moves. The last one
    counts, since earlier ones may have been considered and rejected.
    """
    plans = list(_PLAN.finditer(re.sub(r"\s+", " ", text.lower())))
    if not plans:
        return ()
    moves: list[str] = []
    for move in _EACH.finditer(plans[-1]["moves"]):
        times = move["times"].split()
        number = _NUMBERS.get(times[0]) or int(times[0]) if times else 1
        moves += [_SIDES[move["side"]]] * number
    return tuple(moves)
