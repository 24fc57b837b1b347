"""Scores: what one policy does on one panel, pooled over seeds, and how it differs from another policy.

cells, outcomes -> measure -> Measured -> score -> Score
differences -> corrected -> Comparison
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple, TypeVar

import numpy as np

from starpo.ragen.agents.evaluation.clusters import cluster_mean, mean_t_interval
from starpo.ragen.agents.evaluation.comparison import Counts, PanelDifference, Prompt
from starpo.ragen.agents.evaluation.intervals import success_interval
from starpo.ragen.agents.evaluation.paired import CONFIDENCE
from starpo.ragen.agents.evaluation.significance import holm
from starpo.ragen.studies.checkpoints import SweepCell
from starpo.ragen.studies.outcomes import CellOutcome, pooled
from starpo.ragen.studies.result import Difference, ResultPart

OfT = TypeVar("OfT")


class Comparison(Difference):
    """Difference of a policy from another, state by state."""

    p_value: float
    """Two-sided, of no difference; see `ragen.agents.evaluation.significance.sign_flip_test`."""
    adjusted_p_value: float
    """The same, corrected after Holm for all that are compared with it: all pairs of a leaderboard's ranked lines, on
    the same panel and of the same measure, since the first was chosen by the numbers that are compared."""
    num_pairs: int
    """Number of initial states that both played; 0 if they are not paired."""
    num_up: int
    """States on which it does better."""
    num_down: int
    """States on which it does worse."""
    num_needed: int | None
    """States that would tell a difference of this size from none, with a power of 80% at the 5% level; None if it is 0,
    or the same on every state."""


class Score(ResultPart):
    """A policy on a panel at a temperature, pooled over seeds."""

    seeds: list[int]
    """Seeds that were evaluated."""
    success: float
    """Share of episodes that reach the goal, without episodes that ended in an error and without prompts from which
    training of a compared checkpoint started."""
    low: float
    """Lower end of the 95% interval; see `ragen.agents.evaluation.intervals.success_interval`."""
    high: float
    """Upper end."""
    num_prompts: int
    """Number of initial states with an episode."""
    num_episodes: int
    """Number of episodes over all of them."""
    num_seen_prompts: int = 0
    """Number of excluded prompts of the panel: training of this or another compared checkpoint started from them."""
    seen_success: float | None = None
    """Success on the prompts from which its own training started; None without such prompts."""
    difference: Comparison | None = None
    """Success minus that of the first of the leaderboard; None for the first, without a rank or a common prompt."""
    gain: Difference | None = None
    """For the last checkpoint of a run in a matrix sweep: difference from the run's first one; None if that was not
    measured, or if they have no prompt in common."""
    mean_return: float | None = None
    """Mean return of the episodes that `success` counts: the environment's rewards, without penalties."""
    return_low: float | None = None
    """Lower end of its 95% interval over initial states; None if there is one, or all have the same mean."""
    return_high: float | None = None
    """Upper end."""
    return_difference: Comparison | None = None
    """Mean return minus that of the first, as for `difference`."""
    malformed: float | None = None
    """Share of turns with a malformed response, over all episodes without an error."""
    truncated: float | None = None
    """Share of episodes that ended because the context was full, over all episodes without an error."""
    tokens_per_episode: float | None = None
    """Mean number of response tokens, over all episodes without an error."""
    num_errors: int = 0
    """Number of episodes that ended in an environment error or at a deadline; they count as neither success nor
    failure."""
    seconds: float | None = None
    """Wall-clock time of its evaluations, each on the machine that first did it; None if not recorded."""
    cost: float | None = None
    """What the responses cost, in the currency of the engine's prices; None for engines without prices."""


class Measured(NamedTuple):
    """Measurements of a policy on a panel at a temperature.

    Attributes:
        seeds: Seeds that were evaluated.
        counts: Counts by prompt, summed over them, without the prompts that no score counts.
        returns: Sums of returns by prompt, likewise.
        totals: Totals of `outcomes.CellOutcome`, summed; those that a seed lacks are absent.
        num_seen: Number of prompts that no score counts.
        seen_counts: Counts on the prompts from which the checkpoint's own training started.
        is_whole: Whether all of its cells were evaluated.
    """

    seeds: list[int]
    counts: Counts
    returns: Counts
    totals: Mapping[str, float]
    num_seen: int
    seen_counts: Counts
    is_whole: bool


def measure(cells: Sequence[SweepCell], outcomes: Mapping[str, CellOutcome], excluded: set[Prompt]) -> Measured:
    """Pool the outcomes of the seeds of one policy on one panel.

    Args:
        cells: Its cells, one for each seed.
        outcomes: Label of a cell -> its outcome, if it was evaluated.
        excluded: Prompts that no score counts.
    """
    evaluated = {cell.seed: outcomes[cell.label] for cell in cells if cell.label in outcomes}
    counts, returns = (
        {prompt: count for prompt, count in pooled(several).items() if prompt not in excluded}
        for several in ([of.counts for of in evaluated.values()], [of.returns for of in evaluated.values()])
    )
    totals: Counter[str] = Counter()
    for outcome in evaluated.values():
        totals.update(outcome.totals)
    return Measured(
        seeds=list(evaluated),
        counts=counts,
        returns=returns,
        totals={name: v for name, v in totals.items() if all(name in of.totals for of in evaluated.values())},
        num_seen=len(excluded),
        seen_counts=pooled(outcome.seen_counts for outcome in evaluated.values()),
        is_whole=bool(counts) and len(evaluated) == len(cells),
    )


def score(
    measured: Measured,
    difference: Comparison | None = None,
    return_difference: Comparison | None = None,
    gain: Difference | None = None,
) -> Score:
    """Compute the numbers of a policy on a panel, of which at least one prompt was measured."""
    successes, trials = np.array(list(measured.counts.values())).T
    low, high = success_interval(successes, trials, CONFIDENCE)
    mean_return, return_low, return_high = None, None, None
    if measured.returns:
        sums, numbers = np.array(list(measured.returns.values())).T
        mean_return = cluster_mean(sums, numbers)[0]
        return_low, return_high = mean_t_interval(sums, numbers, CONFIDENCE) or (None, None)
    totals = measured.totals
    return Score(
        seeds=measured.seeds,
        success=float(successes.sum() / trials.sum()),
        low=low,
        high=high,
        num_prompts=len(trials),
        num_episodes=int(trials.sum()),
        num_seen_prompts=measured.num_seen,
        seen_success=_share(measured.seen_counts),
        difference=difference,
        gain=gain,
        mean_return=mean_return,
        return_low=return_low,
        return_high=return_high,
        return_difference=return_difference,
        malformed=_ratio(totals, "num_format_errors", "num_turns"),
        truncated=_ratio(totals, "num_truncated", "num_episodes"),
        tokens_per_episode=_ratio(totals, "num_response_tokens", "num_episodes"),
        num_errors=int(totals.get("num_errors", 0)),
        seconds=totals.get("seconds"),
        cost=totals.get("cost"),
    )


def corrected(differences: Mapping[OfT, PanelDifference]) -> dict[OfT, Comparison]:
    """Correct the p-values of differences after Holm; those given are all that could have been looked at."""
    adjusted = holm([of.p_value for of in differences.values()])
    return {
        of: Comparison(**asdict(difference), adjusted_p_value=p_value)
        for (of, difference), p_value in zip(differences.items(), adjusted, strict=True)
    }


def _share(counts: Counts) -> float | None:
    """Return successes divided by episodes; None without an episode."""
    trials = sum(number for _, number in counts.values())
    return sum(number for number, _ in counts.values()) / trials if trials else None


def _ratio(totals: Mapping[str, float], part: str, whole: str) -> float | None:
    return totals[part] / totals[whole] if totals.get(whole) else None
