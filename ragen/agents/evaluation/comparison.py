"""Comparison of two evaluations: success by prompt, its difference, and whether chance alone explains it.

episodes -> Counts; two of them -> PanelDifference
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.agents.evaluation.episodes import SEEN
from starpo.ragen.agents.evaluation.intervals import success_interval
from starpo.ragen.agents.evaluation.paired import SEED, paired_difference
from starpo.schemas.datasets import ERROR_STATUSES

Prompt = tuple[int, str]
"""A prompt of a panel: its environment seed and the digest of its initial state."""
Counts = Mapping[Prompt, tuple[int, int]]
"""Prompt -> (successes, episodes); prompts whose episodes all ended in an error are absent."""

COUNTED = ("cell", "env_seed", "initial_state_digest", "status", "success")
"""Columns of `episodes` that counts are made of."""


@dataclass(frozen=True)
class PanelDifference:
    """Success of an evaluation minus that of another.

    Attributes:
        mean: The difference.
        low: Lower end of its 95% interval.
        high: Upper end.
        p_value: Two-sided, of no difference.
        num_pairs: Initial states that both were evaluated on, by which they are paired; 0 if they are not paired.
    """

    mean: float
    low: float
    high: float
    p_value: float
    num_pairs: int

    @property
    def is_apart(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def counts_by_prompt(episodes: pa.Table) -> tuple[Counts, Counts]:
    """Count the episodes of each prompt.

    Args:
        episodes: Dataset `episodes`, at least its columns `COUNTED`.

    Returns:
        Those of prompts from which training never started, and those of the other prompts.
    """
    counts = (
        pl.DataFrame(episodes.select(COUNTED))
        .filter(pl.col("status").is_in(ERROR_STATUSES).not_())
        .group_by(pl.col("cell").str.ends_with(SEEN), "env_seed", "initial_state_digest", maintain_order=True)
        .agg(successes=pl.col("success").sum(), trials=pl.len())
    )
    parts: tuple[dict[Prompt, tuple[int, int]], ...] = ({}, {})
    for is_seen, seed, digest, successes, trials in counts.iter_rows():
        parts[is_seen][seed, digest] = (successes, trials)
    return parts[0], parts[1]


def compare_counts(counts: Counts, base: Counts) -> PanelDifference | None:
    """Compare two evaluations, pair by pair where they share at least half of their prompts.

    Paired: the difference over the shared prompts, its bootstrap interval (`paired`), and the exact sign test over the
    prompts whose success differs, which for one episode a prompt is McNemar's (1947). Unpaired: the difference of the
    rates, its interval from both rates' own (Newcombe 1998), and the pooled z test, prompts as trials.

    Args:
        counts: Successes and episodes by prompt.
        base: Those that they are compared with.

    Returns:
        None if either has no prompt.
    """
    if not counts or not base:
        return None
    shared = sorted(counts.keys() & base.keys())
    if 2 * len(shared) < max(len(counts), len(base)):
        return _unpaired(counts, base)
    rates, base_rates = (np.array([[of[prompt][0] / of[prompt][1] for prompt in shared]]) for of in (counts, base))
    difference = paired_difference(rates, base_rates)
    return PanelDifference(difference.mean, difference.low, difference.high, sign_test(rates - base_rates), len(shared))


def sign_test(differences: np.ndarray) -> float:
    """Two-sided exact p-value of positive and negative differences being equally likely; zeros do not count.

    p = min(1, 2 P(X <= min(n+, n-))),   X ~ Binomial(n+ + n-, 1/2)
    """
    up, down = int((differences > 0).sum()), int((differences < 0).sum())
    tail = sum(math.comb(up + down, k) for k in range(min(up, down) + 1))
    return min(1.0, 2 * tail / 2 ** (up + down))


def _unpaired(counts: Counts, base: Counts) -> PanelDifference:
    sides = []
    for of in (counts, base):
        successes, trials = np.array(list(of.values())).T
        sides.append((successes.sum() / trials.sum(), *success_interval(successes, trials, SEED)))
    (rate, low, high), (base_rate, base_low, base_high) = sides
    mean = float(rate - base_rate)
    below, above = math.hypot(rate - low, base_high - base_rate), math.hypot(high - rate, base_rate - base_low)
    pooled = (rate * len(counts) + base_rate * len(base)) / (len(counts) + len(base))
    error = math.sqrt(pooled * (1 - pooled) * (1 / len(counts) + 1 / len(base)))
    p_value = 2 * NormalDist().cdf(-abs(mean) / error) if error else 1.0
    return PanelDifference(mean, max(-1.0, mean - below), min(1.0, mean + above), p_value, 0)
