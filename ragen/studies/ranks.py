"""Rank correlations with intervals: do cells stand in an expected order, and does one number rise with another?

Spearman's rho = the correlation of the ranks, in which equal values share the mean of theirs (Spearman 1904). Intervals
are percentiles of resamples (Efron 1979): of seeds and, within each, of prompts, as in `ragen.studies.bootstrap`; or of
whole runs, since the points of one run hang together.
"""

from collections.abc import Sequence

import numpy as np

from starpo.ragen.studies.bootstrap import NUM_RESAMPLES, SEED, percentiles
from starpo.ragen.studies.result import Part

_NUMBERS_AT_ONCE = 1 << 20


class RankCorrelation(Part):
    """Spearman's rho with its interval."""

    rho: float
    """In [-1, 1]: 1 is the same order, -1 the opposite, 0 none."""
    low: float
    """Lower end of the bootstrap interval."""
    high: float
    """Upper end."""
    num: int
    """Cells, or points, that were ranked."""

    def __str__(self) -> str:
        return f"rank correlation {self.rho:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def spearman(xs: np.ndarray, ys: np.ndarray) -> float | None:
    """Spearman's rank correlation.

    Args:
        xs: Finite. [points]
        ys: Finite. [points]

    Returns:
        None: there are fewer than two points, or all values of one side are equal, so there is no order.
    """
    if len(xs) < 2:
        return None
    ranks = [_ranks(values) - (len(values) - 1) / 2 for values in (xs, ys)]
    norms = [float(np.sqrt(values @ values)) for values in ranks]
    return float(ranks[0] @ ranks[1]) / (norms[0] * norms[1]) if min(norms) > 0 else None


def order_of_cells(rates: np.ndarray) -> RankCorrelation | None:
    """Do cells succeed more, the later they stand?

    Seeds and prompts are drawn once for all cells, so that what makes a seed lucky moves them together.

    Args:
        rates: Success rates in the expected order, lowest first; NaN where not measured. [cells, seeds, prompts]

    Returns:
        None: a cell was not measured, or all succeed alike.
    """
    num_cells, num_seeds, num_prompts = rates.shape
    if not np.isfinite(rates).any(axis=(1, 2)).all():
        return None
    rho = spearman(np.arange(num_cells), np.nanmean(rates, axis=(1, 2)))
    if rho is None:
        return None
    random, weights, values = np.random.default_rng(SEED), np.isfinite(rates).astype(float), np.nan_to_num(rates)
    at_once = max(1, _NUMBERS_AT_ONCE // rates.size)
    places = np.arange(num_cells) - (num_cells - 1) / 2
    found = []
    for start in range(0, NUM_RESAMPLES, at_once):
        count = min(at_once, NUM_RESAMPLES - start)
        totals, sizes = np.zeros((num_cells, count)), np.zeros((num_cells, count))
        for drawn in random.integers(num_seeds, size=(num_seeds, count, 1)):
            prompts = random.integers(num_prompts, size=(count, num_prompts))
            totals += values[:, drawn, prompts].sum(axis=2)
            sizes += weights[:, drawn, prompts].sum(axis=2)
        means = (totals / np.where(sizes > 0, sizes, np.nan)).T
        means = means[np.isfinite(means).all(axis=1)]
        above = (means[:, :, None] > means[:, None, :]).sum(axis=2)
        level = (means[:, :, None] == means[:, None, :]).sum(axis=2)
        found.append(_rhos(above + (level - 1) / 2, np.broadcast_to(places, means.shape), np.ones_like(means)))
    return _with_interval(rho, np.concatenate(found), num_cells)


def correlation_over_runs(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> RankCorrelation | None:
    """Does y rise with x over the points of several runs? The interval is from drawing whole runs.

    Args:
        runs: (x, y) of each, aligned, finite.

    Returns:
        None: there is no order. One run says nothing about others: its interval is [-1, 1].
    """
    runs = [run for run in runs if len(run[0])]
    if not runs:
        return None
    xs, ys = (np.concatenate([run[side] for run in runs]) for side in (0, 1))
    rho = spearman(xs, ys)
    if rho is None:
        return None
    if len(runs) == 1:
        return RankCorrelation(rho=rho, low=-1.0, high=1.0, num=len(xs))
    run_of_point = np.repeat(np.arange(len(runs)), [len(run[0]) for run in runs])
    random = np.random.default_rng(SEED)
    at_once = max(1, _NUMBERS_AT_ONCE // len(xs))
    found = []
    for start in range(0, NUM_RESAMPLES, at_once):
        drawn = random.integers(len(runs), size=(min(at_once, NUM_RESAMPLES - start), len(runs)))
        times = (drawn[:, :, None] == np.arange(len(runs))).sum(axis=1)[:, run_of_point].astype(float)
        found.append(_rhos(_weighted_ranks(xs, times), _weighted_ranks(ys, times), times))
    return _with_interval(rho, np.concatenate(found), len(xs))


def _with_interval(rho: float, resampled: np.ndarray, num: int) -> RankCorrelation:
    low, high = percentiles(resampled)
    return RankCorrelation(rho=rho, low=low, high=high, num=num)


def _ranks(values: np.ndarray) -> np.ndarray:
    """From 0 up; equal values share the mean of theirs. [points]"""
    return _weighted_ranks(values, np.ones((1, len(values))))[0]


def _weighted_ranks(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Ranks of points that are there several times, or not at all.

    Args:
        values: [points]
        times: How often each is there. [resamples, points]

    Returns:
        From 0 up; equal values share the mean of theirs. [resamples, points]
    """
    different, places = np.unique(values, return_inverse=True)
    counts = times @ np.eye(len(different))[places]
    return (np.cumsum(counts, axis=1) - (counts + 1) / 2)[:, places]


def _rhos(xs: np.ndarray, ys: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Correlation of each row; 0 where one side has no order. [resamples, points] each -> [resamples]"""
    total = weights.sum(axis=1, keepdims=True)
    xs, ys = (of - (weights * of).sum(axis=1, keepdims=True) / total for of in (xs, ys))
    norms = np.sqrt((weights * xs**2).sum(axis=1) * (weights * ys**2).sum(axis=1))
    products = (weights * xs * ys).sum(axis=1)
    return np.divide(products, norms, out=np.zeros_like(norms), where=norms > 1e-12)
