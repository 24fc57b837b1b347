"""`Finding`: what a paper reports, beside what a grid measures; and in a sentence whether it shows here."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from starpo.ragen.core.settings import Settings
from starpo.ragen.studies.ranks import RankCorrelation
from starpo.ragen.studies.result import Difference

Expected = Literal["higher", "lower", "alike", "later"]
"""Of a cell, against the base: success at the end is higher, lower or about the same; or training falls later, or
never."""


class Finding(Settings):
    """A result of a paper."""

    source: str = Field(min_length=1)
    """Where it stands, such as "RAGEN, Table 4"."""
    claim: str = Field(min_length=1)
    """What it says, in a sentence."""
    numbers: dict[str, float] = Field(default_factory=dict)
    """Label of a cell -> success in the paper, as a share; another model, other rooms: an order, not a target."""
    expected: dict[str, Expected] = Field(default_factory=dict)
    """Label of a cell -> how it differs from the base if the finding shows."""
    margin: float = Field(0.05, gt=0, le=1)
    """Points of success, as a share, within which a cell that is expected to be alike may differ."""
    order: list[str] = Field(default_factory=list)
    """Labels of cells from the lowest success at the end to the highest, if the finding is an order; at least three."""


Falls = Mapping[int, int | None]
"""Seed -> iteration at which success in training had halved for good (`diagnostics.backtest.fall`); None: never."""


def judge_end(expected: Literal["higher", "lower"], difference: Difference | None) -> str:
    """Does success at the end differ as expected? Only if the whole interval does."""
    if difference is None:
        return "not measured"
    sign = 1 if expected == "higher" else -1
    low, high = sorted((sign * difference.low, sign * difference.high))
    if low > 0:
        return f"shows ({difference})"
    return f"the opposite shows ({difference})" if high < 0 else f"does not show ({difference})"


def judge_alike(difference: Difference | None, margin: float) -> str:
    """Is success at the end about the same? Only if the whole interval lies within the margin."""
    if difference is None:
        return "not measured"
    said = f"{difference}, margin {margin:.3f}"
    if -margin < difference.low and difference.high < margin:
        return f"shows ({said})"
    is_outside = difference.low > margin or difference.high < -margin
    return f"the opposite shows ({said})" if is_outside else f"does not show ({said})"


def judge_order(correlation: RankCorrelation | None) -> str:
    """Do cells stand in the expected order? Only if the whole interval of the rank correlation says so."""
    if correlation is None:
        return "not measured"
    if correlation.low > 0:
        return f"shows ({correlation})"
    return f"the opposite shows ({correlation})" if correlation.high < 0 else f"does not show ({correlation})"


def judge_fall(falls: Falls, base: Falls) -> str:
    """Does training fall later than the base's, or never, in every seed in which the base falls?"""
    fell = {seed: iteration for seed, iteration in base.items() if iteration is not None}
    if not fell:
        return "cannot show: the base falls in no seed"
    if not falls.keys() >= fell.keys():
        return "not measured"
    pairs = [(falls[seed], iteration) for seed, iteration in fell.items()]
    said = f"base: {fallen(base)}; here: {fallen(falls)}"
    is_later = [own is None or own > theirs for own, theirs in pairs]
    if all(is_later):
        return f"shows in {len(pairs)} of {len(pairs)} seeds ({said})"
    return f"does not show: later in {sum(is_later)} of {len(pairs)} seeds ({said})"


def fallen(falls: Falls) -> str:
    """In how many seeds success fell, and when."""
    at = [str(iteration) for iteration in falls.values() if iteration is not None]
    return f"{len(at)} of {len(falls)} fell" + (f", at {', '.join(at)}" if at else "")


def sentence(verdicts: Mapping[str, str]) -> str:
    """All verdicts of a study as one sentence: for what the finding shows at this scale, and for what it does not.

    Args:
        verdicts: What was judged -> its verdict, which begins with 'shows', 'does not show', 'the opposite shows',
            'cannot show' or 'not measured'.
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
