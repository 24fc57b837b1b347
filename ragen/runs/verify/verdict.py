"""`CheckResult`: outcome of one check of one stage of one iteration; `NotComputedError`: why there is none."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Outcome of a check."""

    SAME = "same"
    """The recomputed result equals the stored one, bit for bit (stages of pure arithmetic: up to rounding)."""
    DIFFERENT = "different"
    """The results differ, and nothing excuses it."""
    NOT_SHOWN = "not shown"
    """Undecided: it could not be recomputed, or need not give the same result; the detail gives the reason."""
    DAMAGED = "damaged"
    """The stored artifact is missing, or differs from what was written."""

    @property
    def is_fault(self) -> bool:
        """Whether it makes the verification of a run fail."""
        return self in (Verdict.DIFFERENT, Verdict.DAMAGED)


class NotComputedError(Exception):
    """A stage is not recomputed, or a check not carried out.

    Attributes:
        verdict: Verdict on its artifacts.
    """

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


@dataclass(frozen=True)
class CheckResult:
    """Result of a check.

    Attributes:
        iteration: Iteration of the run.
        stage: Name in the run's record, such as `rollout` or `evaluate:sokoban`; `record` for the record itself.
        check: A kind of artifact (the stage recomputed), or 'actions', 'texts', 'tokens', 'numbers', 'advantages',
            'place' or 'seals'.
        verdict: Outcome.
        detail: The reason, or the first difference; empty for SAME.
        artifact: The checked artifact, `<kind>/<key>`, or the path of a record.
    """

    iteration: int
    stage: str
    check: str
    verdict: Verdict
    detail: str = ""
    artifact: str = ""


def summarised(differences: Iterable[str]) -> str:
    """Return the first difference and the number of further ones; empty if there is none."""
    rest = iter(differences)
    first = next(rest, "")
    num_more = sum(1 for _ in rest)
    return f"{first} (and {num_more} more)" if num_more else first
