"""Do two numbers order several things alike? Spearman's rank correlation with a bootstrap interval: pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from starpo.ragen.studies.bootstrap import CONFIDENCE, NUM_RESAMPLES, SEED

MIN_PAIRS = 3
"""With fewer, an order says nothing."""


@dataclass(frozen=True)
class RankCorrelation:
    """Of pairs of numbers.

    Attributes:
        rho: Pearson's correlation of their ranks; of equal numbers each has the mean of their ranks.
        low: Lower end of the interval.
        high: Upper end.
        num: Pairs.
    """

    rho: float
    low: float
    high: float
    num: int


def rank_correlation(
    ones: Sequence[float],
    others: Sequence[float],
    *,
    seed: int = SEED,
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
) -> RankCorrelation | None:
    """Spearman's rho, and the interval that drawing pairs with replacement gives (percentile method, Efron 1979).

    Deterministic. Resamples in which all ones, or all others, are equal have no correlation and are left out. With few
    pairs the interval is a rough one.

    Args:
        ones: Finite. [n]
        others: Aligned. [n]
        seed: Of the resampling.
        confidence: Between 0 and 1.
        num_resamples: How many.

    Returns:
        None with fewer than three pairs, or where one side is the same in all of them.
    """
    pairs = np.array([ones, others], dtype=np.float64)
    num = pairs.shape[1]
    if num < MIN_PAIRS or (np.ptp(pairs, axis=1) == 0).any():
        return None
    drawn = np.random.default_rng(seed).integers(num, size=(num_resamples, num))
    resampled = np.concatenate([_rho(*pairs[:, part]) for part in np.array_split(drawn, 20)])
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(resampled, [tail, 1 - tail])
    return RankCorrelation(float(_rho(*pairs[:, None])[0]), float(low), float(high), num)


def _rho(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of every row; NaN where one side does not vary. [resamples, n] each"""
    a, b = (ranks - ranks.mean(1, keepdims=True) for ranks in map(_ranks, (ones, others)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))


def _ranks(values: np.ndarray) -> np.ndarray:
    """From 1 up within every row; equal numbers have the mean of their ranks. [resamples, n]"""
    one, other = values[:, :, None], values[:, None, :]
    return (other < one).sum(2) + ((other == one).sum(2) + 1) / 2
