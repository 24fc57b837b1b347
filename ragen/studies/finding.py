"""`PaperFinding`: what a paper reports, to compare with what a grid measures, and whether it is reproduced."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from starpo.ragen.core.settings import Settings
from starpo.ragen.studies.ranks import RankCorrelation
from starpo.ragen.studies.result import Difference

Expected = Literal["higher", "lower", "alike", "later"]
"""Expected relation of a cell to the base: success at the end is higher, lower or about the same; or training collapses
later or never."""


class PaperFinding(Settings):
    """A result of a paper."""

    source: str = Field(min_length=1)
    """Reference, such as "RAGEN, Table 4"."""
    claim: str = Field(min_length=1)
    """The claim, in a sentence."""
    numbers: dict[str, float] = Field(default_factory=dict)
    """Label of a cell -> success in the paper, as a share; its model and rooms differ: an order, not a target."""
    expected: dict[str, Expected] = Field(default_factory=dict)
    """Label of a cell -> how it differs from the base if the finding is reproduced."""
    margin: float = Field(0.05, gt=0, le=1)
    """Largest difference in success, as a share, of a cell that is expected to be alike."""
    order: list[str] = Field(default_factory=list)
    """Labels of cells from the lowest success at the end to the highest, if the finding is an order; at least three."""


Falls = Mapping[int, int | None]
"""Seed -> iteration at which training success had halved for good (`diagnostics.fall.fall`); None if never."""


def judge_end(expected: Literal["higher", "lower"], difference: Difference | None) -> str:
    """Judge whether success at the end differs as expected; requires that the whole interval does."""
    if difference is None:
        return "not measured"
    sign = 1 if expected == "higher" else -1
    low, high = sorted((sign * difference.low, sign * difference.high))
    if low > 0:
        return f"shows ({difference})"
    return f"the opposite shows ({difference})" if high < 0 else f"does not show ({difference})"


def judge_alike(difference: Difference | None, margin: float) -> str:
    """Judge whether success at the end is about the same; requires that the whole interval lies within the margin."""
    if difference is None:
        return "not measured"
    measurement = f"{difference}, margin {margin:.3f}"
    if -margin < difference.low and difference.high < margin:
        return f"shows ({measurement})"
    is_outside = difference.low > margin or difference.high < -margin
    return f"the opposite shows ({measurement})" if is_outside else f"does not show ({measurement})"


def judge_order(correlation: RankCorrelation | None) -> str:
    """Judge whether cells follow the expected order; requires the whole interval of the rank correlation above 0."""
    if correlation is None:
        return "not measured"
    if correlation.low > 0:
        return f"shows ({correlation})"
    return f"the opposite shows ({correlation})" if correlation.high < 0 else f"does not show ({correlation})"


def judge_fall(falls: Falls, base: Falls) -> str:
    """Judge whether training falls later than the base, or never, in every seed in which the base falls."""
    fell = {seed: iteration for seed, iteration in base.items() if iteration is not None}
    if not fell:
        return "cannot show: the base falls in no seed"
    if not falls.keys() >= fell.keys():
        return "not measured"
    pairs = [(falls[seed], iteration) for seed, iteration in fell.items()]
    measurement = f"base: {fallen(base)}; here: {fallen(falls)}"
    is_later = [ours is None or ours > theirs for ours, theirs in pairs]
    if all(is_later):
        return f"shows in {len(pairs)} of {len(pairs)} seeds ({measurement})"
    return f"does not show: later in {sum(is_later)} of {len(pairs)} seeds ({measurement})"


def fallen(falls: Falls) -> str:
    """Format in how many seeds success fell, and when."""
    at = [str(iteration) for iteration in falls.values() if iteration is not None]
    return f"{len(at)} of {len(falls)} fell" + (f", at {', '.join(at)}" if at else "")


def sentence(verdicts: Mapping[str, str]) -> str:
    """Combine all verdicts of a study into one sentence: for what the finding shows at this scale, and for what not.

    Args:
        verdicts: Claim -> its verdict, which begins with 'shows', 'does not show', 'the opposite shows', 'cannot show'
            or 'not measured'.
    """
    kinds = {
        "shows": "the finding shows for",
        "does not show": "the finding does not show for",
        "the opposite shows": "the opposite shows for",
        "cannot show": "nothing can show for",
        "not measured": "nothing is measured for",
    }
    sorted_out: dict[str, list[str]] = {}
    for what, verdict in verdicts.items():
        sorted_out.setdefault(next(kind for kind in kinds if verdict.startswith(kind)), []).append(what)
    parts = [f"{words} {', '.join(sorted_out[kind])}" for kind, words in kinds.items() if kind in sorted_out]
    return f"At this scale {'; '.join(parts)}." if parts else ""
