"""Scores of an answer against the right ones: pure functions of two texts.

answer, right answers -> score in [0, 1]
"""

import re
import string
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import regex

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.search_qa.scoring import exact_match


class Scored(NamedTuple):
    """What a registered scoring says of an answer.

    Attributes:
        score: From 0 to 1; 1 is a success.
        facts: What the score was read from, JSON-serialisable, stored in the turn's `info` under the scoring's name. If
            it asked a server, `requests` is how often.
    """

    score: float
    facts: Mapping[str, Any]


_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3}|/\d+)?")
_TOLERANCE = Fraction(1, 1_000_000)
_PATTERN_S = 1.0
_LETTERS = (
    re.compile(r"^\W*([A-Za-z])\W*$"),  # B, (b), **B**
    re.compile(r"^\W*([A-Z])[).:]\s"),  # B. Paris
    re.compile(r"\b[Aa]nswer(?:\s+is)?:?\s*\(?([A-Z])\)?\W*$"),  # The answer is (B).
)


def number(text: str) -> Fraction | None:
    """Return the last number in a text, such as 42 of `so it is $42.00 in all`; None if it holds none.

    Commas between digits, signs of currencies, units and percent signs are ignored. `3/4` is one number.
    """
    matches = _NUMBER.findall(text)
    if not matches:
        return None
    last = matches[-1].replace(",", "")
    numerator, _, denominator = last.partition("/")
    if denominator and not int(denominator):
        return None
    return Fraction(numerator) / Fraction(denominator or 1)


def same_number(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if the last number of the answer equals that of a right one, up to 1e-6 of its size; else 0."""
    given = number(answer)
    if given is None:
        return 0.0
    rights = [right for gold in golds if (right := number(gold)) is not None]
    return float(any(abs(given - right) <= _TOLERANCE * max(Fraction(1), abs(right)) for right in rights))


def same_characters(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if the answer equals a right one, apart from whitespace around it; else 0."""
    return float(answer.strip() in {gold.strip() for gold in golds})


def same_words(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if the answer equals a right one without case, punctuation and articles, as SQuAD compares; else 0."""
    return float(exact_match(answer, tuple(golds)))


def matches(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if a right answer, a regular expression, matches the whole answer; else 0.

    Raises:
        EnvironmentFault: If matching takes longer than a second.
    """
    for gold in golds:
        try:
            if regex.fullmatch(gold, answer.strip(), timeout=_PATTERN_S):
                return 1.0
        except TimeoutError as error:
            raise EnvironmentFault(
                f"questions: the pattern {gold!r} takes more than {_PATTERN_S:g} s for an answer of {len(answer)} "
                "characters; write it without nested repetition"
            ) from error
    return 0.0


def same_choice(answer: str, golds: Sequence[str], choices: Sequence[str] = ()) -> float:
    """Return 1 if the answer names the right choice, by its letter (`B`, `(b)`, `B. Paris`) or its whole text; else 0.

    Args:
        answer: The answer.
        golds: Letters of the right choices.
        choices: Texts of the choices, A first.
    """
    return float(chosen(answer, choices) in golds)


def chosen(answer: str, choices: Sequence[str]) -> str | None:
    """Return the letter of the choice that an answer names; None if it names none."""
    texts = [_plain(choice) for choice in choices]
    if texts.count(_plain(answer)) == 1:
        return string.ascii_uppercase[texts.index(_plain(answer))]
    letters = [match[1].upper() for pattern in _LETTERS if (match := pattern.search(answer))]
    known = string.ascii_uppercase[: len(choices)]
    return letters[0] if letters and letters[0] in known else None


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(".")


COMPARISONS: dict[str, Callable[[str, Sequence[str]], float]] = {
    "number": same_number,
    "exact": same_characters,
    "text": same_words,
    "pattern": matches,
}
"""Scorings that compare an answer with the right ones; 'choice' also reads the choices."""
