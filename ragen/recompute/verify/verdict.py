"""`CheckResult`: what one check found about one stage of one iteration."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check ended."""

    SAME = "same"
    """What was done again gives what is stored, bit for bit."""
    DIFFERENT = "different"
    """It gives something else, and nothing excuses it."""
    NOT_SHOWN = "not shown"
    """Nothing shows whether it is: it could not be done again, or need not give the same; the detail says why."""
    LEFT_OUT = "left out"
    """It takes long and was not asked for."""
    DAMAGED = "damaged"
    """What is stored is missing, or not what was written."""

    @property
    def is_fault(self) -> bool:
        """Does it make a run fail its verification?"""
        return self in (Verdict.DIFFERENT, Verdict.DAMAGED)


@dataclass(frozen=True)
class CheckResult:
    """A check's result.

    Attributes:
        iteration: Of the run.
        stage: As the run's record calls it, such as `rollout` or `evaluate:sokoban`; `record` for the record itself.
        check: A kind (the stage computed again), 'actions', 'texts', 'tokens', 'numbers', 'place' or 'seals'.
        verdict: How it ended.
        detail: Why, or what differs first; empty where it is the same.
        artifact: `<kind>/<key>` that it is about.
    """

    iteration: int
    stage: str
    check: str
    verdict: Verdict
    detail: str = ""
    artifact: str = ""


def summarised(differences: Iterator[str]) -> str:
    """The first difference, and how many more there are; empty where there is none."""
    first = next(differences, "")
    num_more = sum(1 for _ in differences)
    return f"{first} (and {num_more} more)" if num_more else first
