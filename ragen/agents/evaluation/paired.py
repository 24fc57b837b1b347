"""Paired intervals of a difference of success rates: pure functions of the success on each prompt.

Every cell is run with the same seeds and evaluated on the same prompts, so a cell and the base are compared pair by
pair, and whatever makes a seed lucky or a prompt hard for both of them cancels out.

    d[s, p] = rate of the cell - rate of the base        seed s, prompt p; only if both were measured
    difference = sum of d / number of pairs
    resample: draw the seeds with replacement; for every drawn seed, draw its pairs with replacement
    interval: the 2.5% and 97.5% quantiles of the resampled differences (percentile method, Efron 1979)

Drawing prompts anew for every seed treats the prompts of two seeds as different, although they are the same. The
alternative, one draw of prompts for all seeds of a resample (Owen 2007, "The pigeonhole bootstrap"), avoids this but
counts the variance of single episodes three times, and with one episode per prompt nearly all variance is of that kind:
its 95% intervals covered the truth in 99% of simulated ablations; docs/ablation.md has the coverage of this module.
"""

from dataclasses import dataclass

import numpy as np

from starpo.ragen.agents.evaluation.intervals import wilson_interval

NUM_RESAMPLES = 10_000
SEED = 20_250_424
CONFIDENCE = 0.95
_ROUNDING = 1e-12
"""Differences closer together than this count as equal."""
_PAIRS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class PairedDifference:
    """A cell's success minus the base's.

    Attributes:
        mean: Mean over all pairs of a seed and a prompt.
        low: Lower end of the interval.
        high: Upper end.
        per_seed: The difference for each seed. [seeds]
        num_prompts: Prompts with at least one pair.
    """

    mean: float
    low: float
    high: float
    per_seed: tuple[float, ...]
    num_prompts: int


def paired_difference(
    cell: np.ndarray, base: np.ndarray, *, least: float = -1.0, seed: int = SEED, num_resamples: int = NUM_RESAMPLES
) -> PairedDifference:
    """Compute the difference of two cells' success rates with its paired bootstrap interval.

    Deterministic: the same rates and the same seed give the same interval. If all pairs differ by the same amount d,
    most often 0, resampling gives an interval of zero width, which would claim certainty. The interval then allows for
    a share h of unseen prompts on which the difference may be anything, where h is the upper end of Wilson's interval
    of 0 successes in `num_prompts` trials: from d (1 - h) + least h to d (1 - h) + h.

    With few seeds the interval is too narrow, as is every bootstrap of few units (docs/ablation.md has its measured
    coverage); with one seed it carries no information about other seeds.

    Args:
        cell: Success rates in [0, 1]; NaN if a prompt has no valid episode. [seeds, prompts]
        base: Success rates of the base, aligned by seed and prompt. [seeds, prompts]
        least: Lower bound of a difference; 0 if the base is all zeros, so that the difference is a success rate.
        seed: Seed of the resampling.
        num_resamples: Number of resamples.

    Raises:
        ValueError: If the shapes differ, or if a seed has no pair.
    """
    cell, base = np.asarray(cell, dtype=np.float64), np.asarray(base, dtype=np.float64)
    if cell.shape != base.shape or cell.ndim != 2:
        raise ValueError(f"expected two arrays [seeds, prompts] of one shape, found {cell.shape} and {base.shape}")
    difference = cell - base
    is_pair = np.isfinite(difference)
    pairs = np.where(is_pair, difference, 0.0)
    if not pairs.size or not is_pair.any(axis=1).all():
        raise ValueError("expected at least one prompt measured in both cells for every seed")
    mean = float(pairs.sum() / is_pair.sum())
    num_prompts = int(is_pair.any(axis=0).sum())
    if np.ptp(difference[is_pair]) < _ROUNDING:
        unseen = wilson_interval(0, num_prompts, CONFIDENCE)[1]
        low, high = mean * (1 - unseen) + least * unseen, mean * (1 - unseen) + unseen
    else:
        low, high = percentiles(_resample(pairs, is_pair.astype(np.float64), seed, num_resamples))
    per_seed = tuple(float(value) for value in pairs.sum(axis=1) / is_pair.sum(axis=1))
    return PairedDifference(mean, low, high, per_seed, num_prompts)


def percentiles(resampled: np.ndarray) -> tuple[float, float]:
    """Return the central interval that contains a share `CONFIDENCE` of the resamples."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return float(low), float(high)


def _resample(pairs: np.ndarray, weights: np.ndarray, seed: int, num_resamples: int) -> np.ndarray:
    """Return the differences of the resamples, except those without a pair, rare unless most pairs are missing."""
    num_seeds, num_prompts = pairs.shape
    random = np.random.default_rng(seed)
    at_once = max(1, _PAIRS_AT_ONCE // num_prompts)
    means = []
    for start in range(0, num_resamples, at_once):
        count = min(at_once, num_resamples - start)
        total, size = np.zeros(count), np.zeros(count)
        for drawn in random.integers(num_seeds, size=(num_seeds, count, 1)):
            prompts = random.integers(num_prompts, size=(count, num_prompts))
            total += pairs[drawn, prompts].sum(axis=1)
            size += weights[drawn, prompts].sum(axis=1)
        means.append(total[size > 0] / size[size > 0])
    return np.concatenate(means)
