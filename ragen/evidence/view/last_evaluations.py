"""The last evaluations of two runs beside each other: their difference, and what it comes to in words.

Counts of each -> PanelDifference, sentence
"""

from dataclasses import dataclass

from starpo.ragen.agents.evaluation.comparison import Counts, PanelDifference, compare_counts
from starpo.ragen.core.counts import counted


@dataclass(frozen=True)
class LastEvaluation:
    """The last evaluation of a run on the panel of its environment.

    Attributes:
        environment: Type of the environment.
        is_measured: Whether there is one.
        counts: Successes and episodes by initial state; None if there is none, or its episodes cannot be read.
    """

    environment: str
    is_measured: bool
    counts: Counts | None


def compare_last(last: LastEvaluation, base: LastEvaluation) -> tuple[PanelDifference | None, str]:
    """Compare a run with the first one.

    Returns:
        The difference, None if there is none; what it comes to, or why there is none, in words.
    """
    if last.environment != base.environment:
        return None, f"not compared: it is evaluated on {last.environment}, the first run on {base.environment}"
    for which, evaluation in (("the first run", base), ("it", last)):
        if not evaluation.is_measured:
            return None, f"not compared: {which} has no evaluation yet"
        if evaluation.counts is None:
            return None, f"not compared: {which} has a last evaluation whose episodes cannot be read"
        if not evaluation.counts:
            return None, f"not compared: {which} has a last evaluation whose episodes all ended in an error"
    counts, base_counts = last.counts or {}, base.counts or {}
    difference = compare_counts(counts, base_counts)
    assert difference is not None, "both have states"
    outcome = "no difference that can be told from chance"
    if difference.is_apart:
        outcome = "higher than the first run" if difference.mean > 0 else "lower than the first run"
    if difference.num_pairs:
        paired = f"paired over {counted(difference.num_pairs, 'state')}"
        return difference, f"{outcome}; {paired}, better on {difference.num_up}, worse on {difference.num_down}"
    num_shared = len(counts.keys() & base_counts.keys())
    shared = f"share {counted(num_shared, 'state')}" if num_shared else "share no state"
    return difference, (
        f"{outcome}; not paired: the panels, of {len(base_counts)} and {len(counts)} states, {shared}, so the interval "
        "is that of two independent rates"
    )
