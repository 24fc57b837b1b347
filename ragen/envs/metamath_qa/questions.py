"""Where questions come from: a file in the form of MetaMathQA, or sums in words that are drawn from a seed.

seed -> sum_in_words -> Question        path, digest -> stored_questions -> Questions
"""

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starpo.ragen.envs.sources import Row, read_rows

MARK = "The answer is:"
"""What stands before the answer in MetaMathQA's responses."""

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Ida")
THINGS = ("pens", "nuts", "coins", "plums", "cards", "shells", "beads", "keys")
_GAINS = ("gets", "finds", "buys", "wins")
_LOSSES = ("loses", "sells", "drops", "lends")


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        text: As it is asked.
        answer: The right one.
        start: Of a sum in words, the number that it begins with.
        changes: Of a sum in words, operators and numbers in order; they make the answer.
    """

    text: str
    answer: str
    start: int = 0
    changes: tuple[tuple[str, int], ...] = ()


def sum_in_words(num_steps: int, largest: int, rng: random.Random) -> Question:
    """Draw a question such as `Ann has 3 bags of 4 pens and loses 5. How many pens has Ann?`.

    Args:
        num_steps: 1 or 2 operations.
        largest: Of the numbers in the text; what is left is never negative.
        rng: The only source of chance.
    """
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    changes: list[tuple[str, int]] = []
    if rng.random() < 0.5:
        start, each = rng.randint(2, largest), rng.randint(2, largest)
        changes.append(("*", each))
        total = start * each
        told = f"{name} has {start} bags of {each} {thing}"
    else:
        start = total = rng.randint(1, largest)
        told = f"{name} has {start} {thing}"
    while len(changes) < num_steps:
        is_gain = total == 0 or rng.random() < 0.5
        number = rng.randint(1, largest if is_gain else min(total, largest))
        changes.append(("+" if is_gain else "-", number))
        total += number if is_gain else -number
        told += f" and {rng.choice(_GAINS if is_gain else _LOSSES)} {number}"
    return Question(f"{told}. How many {thing} has {name}?", str(total), start, tuple(changes))


@lru_cache(4)
def stored_questions(path: str, digest: str) -> tuple[Question, ...]:
    """The questions of a file: objects with `query`, and `response` that ends with the answer after `The answer is:`.

    Raises:
        EnvironmentFault: See `read_rows`.
    """
    return tuple(Question(row["query"].strip(), after_mark(row["response"])) for row in read_rows(path, digest, _fault))


def after_mark(text: str) -> str:
    """What follows the last `The answer is:`, whatever its case; the whole text where that is missing."""
    return re.split(re.escape(MARK), text, flags=re.IGNORECASE)[-1].strip()


def normalised(answer: str) -> str:
    """What is compared: the part after `The answer is:`, in lower case, without any white space."""
    return "".join(after_mark(answer).lower().split())


def _fault(row: Row) -> str:
    for name in ("query", "response"):
        text: Any = row.get(name)
        if not isinstance(text, str) or not text.strip():
            return f"'{name}' is {'missing' if name not in row else 'no text'}"
    if MARK.lower() not in row["response"].lower():
        return f"'response' does not say '{MARK}'"
    return "" if normalised(row["response"]) else f"nothing follows '{MARK}'"
