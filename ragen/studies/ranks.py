"""Rank correlations with intervals: whether cells follow an expected order.

Spearman's rho = the correlation of the ranks, where equal values share the mean of their ranks (Spearman 1904).
Intervals are percentiles of resamples (Efron 1979) of seeds and, within each, of prompts, as in
`ragen.agents.evaluation.paired`.
"""

import numpy as np

from starpo.ragen.agents.evaluation.paired import NUM_RESAMPLES, SEED, percentiles
from starpo.ragen.studies.result import ResultPart

_NUMBERS_AT_ONCE = 1 << 20
_DIGITS = 12
"""Success rates that agree to this many decimals are equal: the order of a sum changes how it rounds."""


class RankCorrelation(ResultPart):
    """Spearman's rho with its interval."""

    rho: float
    """In [-1, 1]: 1 for the same order, -1 for the opposite one, 0 for none."""
    low: float
    """Lower end of the bootstrap interval."""
    high: float
    """Upper end."""
    num: int
    """Number of cells that were ranked."""

    def __str__(self) -> str:
        return f"rank correlation {self.rho:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


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
    means = np.nanmean(rates, axis=(1, 2)).round(_DIGITS)
    if num_cells < 2 or not np.ptp(means):
        return None
    rho = float(_rhos(means[None])[0])
    random, weights, values = np.random.default_rng(SEED), np.isfinite(rates).astype(float), np.nan_to_num(rates)
    at_once = max(1, _NUMBERS_AT_ONCE // rates.size)
    rhos = []
    for start in range(0, NUM_RESAMPLES, at_once):
        count = min(at_once, NUM_RESAMPLES - start)
        totals, sizes = np.zeros((num_cells, count)), np.zeros((num_cells, count))
        for drawn in random.integers(num_seeds, size=(num_seeds, count, 1)):
            prompts = random.integers(num_prompts, size=(count, num_prompts))
            totals += values[:, drawn, prompts].sum(axis=2)
            sizes += weights[:, drawn, prompts].sum(axis=2)
        means = (totals / np.where(sizes > 0, sizes, np.nan)).T.round(_DIGITS)
        rhos.append(_rhos(means[np.isfinite(means).all(axis=1)]))
    low, high = percentiles(np.concatenate(rhos))
    return RankCorrelation(rho=rho, low=low, high=high, num=num_cells)


def _rhos(values: np.ndarray) -> np.ndarray:
    """Correlate each row with the order of its columns; 0 if all are equal. [resamples, cells] -> [resamples]"""
    above = (values[:, :, None] > values[:, None, :]).sum(axis=2)
    level = (values[:, :, None] == values[:, None, :]).sum(axis=2)
    middle = (values.shape[1] - 1) / 2
    ranks, places = above + (level - 1) / 2 - middle, np.arange(values.shape[1]) - middle
    norms = np.sqrt((ranks**2).sum(axis=1) * (places @ places))
    return np.divide(ranks @ places, norms, out=np.zeros_like(norms), where=norms > 1e-12)
