"""Sources of questions: a file in MetaMathQA's format, or word problems generated from a seed.

seed -> sum_in_words -> Question        path, digest -> stored_questions -> Questions
"""

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starpo.ragen.envs.sources import Row, read_rows

MARK = "The answer is:"
"""Marker before the answer in MetaMathQA's responses."""

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Ida")
THINGS = ("pens", "nuts", "coins", "plums", "cards", "shells", "beads", "keys")
_GAINS = ("gets", "finds", "buys", "wins")
_LOSSES = ("loses", "sells", "drops", "lends")


@dataclass(frozen=True)
class MathQuestion:
    """One question.

    Attributes:
        text: The question itself.
        answer: The right answer.
        start: For a word problem, its initial number.
        changes: For a word problem, operators and numbers in order; applied to `start`, they give the answer.
    """

    text: str
    answer: str
    start: int = 0
    changes: tuple[tuple[str, int], ...] = ()


def sum_in_words(num_steps: int, largest: int, rng: random.Random) -> MathQuestion:
    """Generate a question such as `Ann has 3 bags of 4 pens and loses 5. How many pens has Ann?`.

    Args:
        num_steps: Number of operations, 1 or 2.
        largest: Largest number in the text; the result is never negative.
        rng: The only source of randomness.
    """
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    changes: list[tuple[str, int]] = []
    if rng.random() < 0.5:
        start, each = rng.randint(2, largest), rng.randint(2, largest)
        changes.append(("*", each))
        total = start * each
        story = f"{name} has {start} bags of {each} {thing}"
    else:
        start = total = rng.randint(1, largest)
        story = f"{name} has {start} {thing}"
    while len(changes) < num_steps:
        is_gain = total == 0 or rng.random() < 0.5
        number = rng.randint(1, largest if is_gain else min(total, largest))
        changes.append(("+" if is_gain else "-", number))
        total += number if is_gain else -number
        story += f" and {rng.choice(_GAINS if is_gain else _LOSSES)} {number}"
    return MathQuestion(f"{story}. How many {thing} has {name}?", str(total), start, tuple(changes))


@lru_cache(4)
def stored_questions(path: str, digest: str) -> tuple[MathQuestion, ...]:
    """Read the questions of a file: objects with `query`, and `response` that ends in `The answer is:` and the answer.

    Raises:
        EnvironmentFault: See `read_rows`.
    """
    return tuple(
        MathQuestion(row["query"].strip(), after_mark(row["response"])) for row in read_rows(path, digest, _fault)
    )


def after_mark(text: str) -> str:
    """Return the text after the last `The answer is:`, ignoring case; the whole text if that is missing."""
    return re.split(re.escape(MARK), text, flags=re.IGNORECASE)[-1].strip()


def normalised(answer: str) -> str:
    """Normalise an answer for comparison: the part after `The answer is:`, in lower case, without whitespace."""
    return "".join(after_mark(answer).lower().split())


def _fault(row: Row) -> str:
    for name in ("query", "response"):
        text: Any = row.get(name)
        if not isinstance(text, str) or not text.strip():
            return f"'{name}' is {'missing' if name not in row else 'no text'}"
    if MARK.lower() not in row["response"].lower():
        return f"'response' does not say '{MARK}'"
    return "" if normalised(row["response"]) else f"nothing follows '{MARK}'"
