"""Rank correlations with intervals: whether cells follow an expected order, and whether one number rises with another.

Spearman's rho = the correlation of the ranks, where equal values share the mean of their ranks (Spearman 1904).
Intervals are percentiles of resamples (Efron 1979): of seeds and, within each, of prompts, as in
`ragen.studies.bootstrap`; or of whole runs, since the points of one run are dependent.
"""

from collections.abc import Sequence

import numpy as np

from starpo.ragen.studies.bootstrap import NUM_RESAMPLES, SEED, percentiles
from starpo.ragen.studies.result import Part

_NUMBERS_AT_ONCE = 1 << 20
_DIGITS = 12
"""Success rates that agree to this many decimals are equal: the order of a sum changes how it rounds."""


class RankCorrelation(Part):
    """Spearman's rho with its interval."""

    rho: float
    """In [-1, 1]: 1 for the same order, -1 for the opposite one, 0 for none."""
    low: float
    """Lower end of the bootstrap interval."""
    high: float
    """Upper end."""
    num: int
    """Number of cells, or points, that were ranked."""

    def __str__(self) -> str:
        return f"rank correlation {self.rho:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def spearman(xs: np.ndarray, ys: np.ndarray) -> float | None:
    """Spearman's rank correlation.

    Args:
        xs: Finite values. [points]
        ys: Finite values. [points]

    Returns:
        None if there are fewer than two points, or if all values on one side are equal, so that there is no order.
    """
    if len(xs) < 2:
        return None
    ranks = [_ranks(values) - (len(values) - 1) / 2 for values in (xs, ys)]
    norms = [float(np.sqrt(values @ values)) for values in ranks]
    return float(ranks[0] @ ranks[1]) / (norms[0] * norms[1]) if min(norms) > 0 else None


def order_of_cells(rates: np.ndarray) -> RankCorrelation | None:
    """Correlate the success of cells with their expected order.

    Seeds and prompts are drawn once for all cells, so that a lucky seed affects them together.

    Args:
        rates: Success rates in the expected order, lowest first; NaN if not measured. [cells, seeds, prompts]

    Returns:
        None if a cell was not measured, or if all succeed equally often.
    """
    num_cells, num_seeds, num_prompts = rates.shape
    if not np.isfinite(rates).any(axis=(1, 2)).all():
        return None
    rho = spearman(np.arange(num_cells), np.nanmean(rates, axis=(1, 2)).round(_DIGITS))
    if rho is None:
        return None
    random, weights, values = np.random.default_rng(SEED), np.isfinite(rates).astype(float), np.nan_to_num(rates)
    at_once = max(1, _NUMBERS_AT_ONCE // rates.size)
    places = np.arange(num_cells)
    found = []
    for start in range(0, NUM_RESAMPLES, at_once):
        count = min(at_once, NUM_RESAMPLES - start)
        totals, sizes = np.zeros((num_cells, count)), np.zeros((num_cells, count))
        for drawn in random.integers(num_seeds, size=(num_seeds, count, 1)):
            prompts = random.integers(num_prompts, size=(count, num_prompts))
            totals += values[:, drawn, prompts].sum(axis=2)
            sizes += weights[:, drawn, prompts].sum(axis=2)
        means = (totals / np.where(sizes > 0, sizes, np.nan)).T.round(_DIGITS)
        means = means[np.isfinite(means).all(axis=1)]
        above = (means[:, :, None] > means[:, None, :]).sum(axis=2)
        level = (means[:, :, None] == means[:, None, :]).sum(axis=2)
        found.append(_rhos(above + (level - 1) / 2, np.broadcast_to(places, means.shape), np.ones_like(means)))
    return _with_interval(rho, np.concatenate(found), num_cells)


def correlation_over_runs(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> RankCorrelation | None:
    """Correlate y with x over the points of several runs; the interval comes from resampling whole runs.

    Args:
        runs: (x, y) of each run, aligned and finite.

    Returns:
        None if there is no order. With a single run the interval is [-1, 1], since it carries no information about
        other runs.
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
    """Ranks from 0 up; equal values share the mean of their ranks. [points]"""
    return _weighted_ranks(values, np.ones((1, len(values))))[0]


def _weighted_ranks(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Ranks of points with multiplicities, which may be 0.

    Args:
        values: [points]
        times: Multiplicity of each point. [resamples, points]

    Returns:
        Ranks from 0 up; equal values share the mean of their ranks. [resamples, points]
    """
    different, places = np.unique(values, return_inverse=True)
    counts = times @ np.eye(len(different))[places]
    return (np.cumsum(counts, axis=1) - (counts + 1) / 2)[:, places]


def _rhos(xs: np.ndarray, ys: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Correlation of each row; 0 if one side has no order. [resamples, points] each -> [resamples]"""
    total = weights.sum(axis=1, keepdims=True)
    xs, ys = (of - (weights * of).sum(axis=1, keepdims=True) / total for of in (xs, ys))
    norms = np.sqrt((weights * xs**2).sum(axis=1) * (weights * ys**2).sum(axis=1))
    products = (weights * xs * ys).sum(axis=1)
    return np.divide(products, norms, out=np.zeros_like(norms), where=norms > 1e-12)
