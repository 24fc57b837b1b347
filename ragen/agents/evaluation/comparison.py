"""Comparison of two evaluations on the same initial states: their difference, and whether chance alone explains it.

episodes -> Counts, of success or of returns; two of them -> PanelDifference
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pyarrow as pa

from starpo.ragen.agents.evaluation.clusters import mean_t_interval
from starpo.ragen.agents.evaluation.intervals import mean_interval, success_interval, wilson_interval
from starpo.ragen.agents.evaluation.significance import sign_flip_test, states_needed
from starpo.schemas.datasets import ERROR_STATUSES, SEEN

Prompt = tuple[int, str]
"""A prompt of a panel: its environment seed and the digest of its initial state."""
Counts = Mapping[Prompt, tuple[float, int]]
"""Prompt -> (successes, or sum of returns; episodes); prompts whose episodes all ended in an error are absent."""

COUNTED = ("cell", "env_seed", "initial_state_digest", "status", "success")
"""Columns of `episodes` that counts of success are made of."""


@dataclass(frozen=True)
class PanelDifference:
    """Mean of an evaluation minus that of another: of success, or of returns.

    Attributes:
        mean: The difference.
        low: Lower end of its 95% interval.
        high: Upper end.
        p_value: Two-sided, of no difference.
        num_pairs: Initial states that both were evaluated on, by which they are paired; 0 if they are not paired.
        num_up: States on which the first does better.
        num_down: States on which it does worse.
        num_needed: Number of states that would tell a difference of this size from none (`significance.states_needed`);
            None if they are not paired, do not differ, or differ by the same on every state.
    """

    mean: float
    low: float
    high: float
    p_value: float
    num_pairs: int
    num_up: int = 0
    num_down: int = 0
    num_needed: int | None = None

    @property
    def is_apart(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def counts_by_prompt(episodes: pa.Table, column: str = "success") -> tuple[Counts, Counts]:
    """Sum a column over the episodes of each prompt, and count them.

    Args:
        episodes: Dataset `episodes`, at least its columns `COUNTED`.
        column: 'success' or 'episode_return'.

    Returns:
        Those of prompts from which training never started, and those of the other prompts.
    """
    parts: tuple[dict[Prompt, tuple[float, int]], ...] = ({}, {})
    columns = [episodes[name].to_pylist() for name in ("cell", "env_seed", "initial_state_digest", "status", column)]
    for cell, seed, digest, status, value in zip(*columns, strict=True):
        if status not in ERROR_STATUSES:
            part = parts[cell.endswith(SEEN)]
            total, trials = part.get((seed, digest), (0, 0))
            part[seed, digest] = total + value, trials + 1
    return parts[0], parts[1]


def compare_counts(counts: Counts, base: Counts) -> PanelDifference | None:
    """Compare the success of two evaluations, pair by pair where they share at least half of their prompts.

    Paired: `paired_comparison`. Unpaired: the difference of the rates, its interval from both rates' own (Newcombe
    1998), and the pooled z test, prompts as trials.

    Args:
        counts: Successes and episodes by prompt.
        base: Those that they are compared with.

    Returns:
        None if either has no prompt.
    """
    if not counts or not base:
        return None
    if 2 * len(counts.keys() & base.keys()) < max(len(counts), len(base)):
        return _unpaired(counts, base)
    return paired_comparison([(counts, base)])


def paired_comparison(panels: Sequence[tuple[Counts, Counts]], reach: float | None = 1.0) -> PanelDifference | None:
    """Compare two policies state by state on each panel; the difference is the unweighted mean over panels.

        d_p = mean of the episodes of state p - mean of those of the base
        interval of a panel: mean d -+ t sd(d) / sqrt(pairs)       of several: `intervals.mean_interval`

    If all states of a panel differ by the same d, most often 0, that interval would claim certainty. It then allows for
    a share h of other states on which the difference may be anything up to `reach`, where h is the upper end of
    Wilson's interval of 0 in `pairs` trials: d (1 - h) -+ reach h.

    Args:
        panels: Counts of each panel, and those that they are compared with.
        reach: Largest possible difference. None for that of the measured values.

    Returns:
        None if there is a panel on which they have no prompt in common, or no panel.
    """
    differences, intervals, bound = [], [], math.inf if reach is None else reach
    for counts, base in panels:
        shared = sorted(counts.keys() & base.keys())
        if not shared:
            return None
        means, base_means = (np.array([of[prompt][0] / of[prompt][1] for prompt in shared]) for of in (counts, base))
        differences.append(means - base_means)
        spread = float(np.ptp([means, base_means])) if reach is None else reach
        intervals.append(_interval(differences[-1], spread, bound))
    if not differences:
        return None
    panel_means = [float(of.mean()) for of in differences]
    low, high = intervals[0] if len(panels) == 1 else mean_interval(panel_means, intervals, -bound, bound)
    together, num_pairs = np.concatenate(differences), sum(map(len, differences))
    mean = math.fsum(panel_means) / len(panels)
    # one state can show no spread
    error = math.hypot(*(float(of.std(ddof=1)) / math.sqrt(len(of)) if len(of) > 1 else math.inf for of in differences))
    return PanelDifference(
        mean=mean,
        low=low,
        high=high,
        p_value=sign_flip_test(np.concatenate([of / (len(of) * len(panels)) for of in differences]) * num_pairs),
        num_pairs=num_pairs,
        num_up=int((together > _ROUNDING).sum()),
        num_down=int((together < -_ROUNDING).sum()),
        num_needed=states_needed(num_pairs, mean, error / len(panels)),
    )


_ROUNDING = 1e-12
"""Differences closer to each other than this count as equal."""


def _interval(differences: np.ndarray, reach: float, bound: float) -> tuple[float, float]:
    mean, ones = float(differences.mean()), np.ones(len(differences))
    if len(differences) > 1 and np.ptp(differences) > _ROUNDING:
        low, high = mean_t_interval(differences, ones) or (mean, mean)
        return max(-bound, low), min(bound, high)
    other = wilson_interval(0, len(differences))[1]
    return mean * (1 - other) - reach * other, mean * (1 - other) + reach * other


def _unpaired(counts: Counts, base: Counts) -> PanelDifference:
    sides = []
    for of in (counts, base):
        successes, trials = np.array(list(of.values())).T
        sides.append((successes.sum() / trials.sum(), *success_interval(successes, trials)))
    (rate, low, high), (base_rate, base_low, base_high) = sides
    mean = float(rate - base_rate)
    below, above = math.hypot(rate - low, base_high - base_rate), math.hypot(high - rate, base_rate - base_low)
    pooled = (rate * len(counts) + base_rate * len(base)) / (len(counts) + len(base))
    error = math.sqrt(pooled * (1 - pooled) * (1 / len(counts) + 1 / len(base)))
    p_value = 2 * NormalDist().cdf(-abs(mean) / error) if error else 1.0
    return PanelDifference(mean, max(-1.0, mean - below), min(1.0, mean + above), p_value, 0)
