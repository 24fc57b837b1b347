"""Statistics of turns with intervals: agreement of an estimate with a truth that is known up to its own noise.

The interval of a statistic is that of the percentiles of resamples: groups are drawn with replacement (Efron 1979),
since turns of one initial state are alike.

    truth t = A + noise of variance s^2, which is independent of the estimate x

Legend: n turns, G groups, R resamples; the first is the turns as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from starpo.ragen.agents.evaluation.intervals import success_interval
from starpo.ragen.agents.evaluation.paired import SEED, percentiles

NUM_RESAMPLES = 1_000
SIGNIFICANT = 1.96
"""Standard errors from 0 beyond which a true advantage counts as not 0: the 95% interval excludes it."""
MIN_TURNS = 3
"""Turns of a trajectory whose order can be compared."""
_ROUNDING = 6
"""Estimates that agree to this many decimals of the largest are equal: they come from float32."""
_TINY = 1e-12
_AT_ONCE = 1 << 16
"""Numbers that are ranked at a time: as many as a processor keeps at hand, six times as fast as all."""


@dataclass(frozen=True)
class Statistic:
    """A statistic with its 95% interval, whose ends are None if it cannot be resampled: there is one group."""

    value: float
    low: float | None
    high: float | None


class Resamples:
    """How often each group is in each resample: once in the first, then as drawn with replacement."""

    def __init__(self, groups: Sequence[object], num: int = NUM_RESAMPLES, seed: int = SEED) -> None:
        """Draw the groups.

        Args:
            groups: Group of each turn. [n]
            num: Number of resamples beside the turns as they are; none are drawn of a single group.
            seed: Seed of the draws.
        """
        names, self._index_n = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
        num_groups = len(names)
        draws = np.random.default_rng(seed).multinomial(
            num_groups, np.full(num_groups, 1 / max(num_groups, 1)), size=num if num_groups > 1 else 0
        )
        self._draws_RG = np.vstack([np.ones((1, num_groups)), draws])

    def sums(self, values_n: np.ndarray) -> np.ndarray:
        """Sum of the values over the turns of each resample, [R]."""
        return self._draws_RG @ np.bincount(self._index_n, weights=values_n)

    def means(self, values_n: np.ndarray) -> np.ndarray:
        """Mean of the values that are not NaN, [R]; NaN without any."""
        is_there = np.isfinite(values_n)
        return _divide(self.sums(np.where(is_there, values_n, 0.0)), self.sums(is_there))

    def share(self, values_n: np.ndarray) -> Statistic | None:
        """Mean of the values that are not NaN, each between 0 and 1, with `success_interval` over groups, which stays
        honest where all values are equal. None without any."""
        is_there = np.isfinite(values_n)
        sums, counts = (
            np.bincount(self._index_n, weights=of_n) for of_n in (np.where(is_there, values_n, 0.0), is_there)
        )
        if not is_there.any():
            return None
        return Statistic(float(sums.sum() / counts.sum()), *success_interval(sums[counts > 0], counts[counts > 0]))

    def weights(self, turns: np.ndarray) -> Iterator[np.ndarray]:
        """Yield how often each of some turns is there, some resamples at a time: [a part of R, len(turns)]."""
        at_once = max(1, _AT_ONCE // max(len(turns), 1))
        for start in range(0, len(self._draws_RG), at_once):
            yield self._draws_RG[start : start + at_once, self._index_n[turns]]


def statistic(values_R: np.ndarray) -> Statistic | None:
    """Return the first value, with the interval of the others; None if it is not defined.

    Resamples in which it is not defined are left out.
    """
    if not np.isfinite(values_R[0]):
        return None
    others = values_R[1:][np.isfinite(values_R[1:])]
    return Statistic(float(values_R[0]), *(percentiles(others) if len(others) else (None, None)))


def rank_correlation(
    x_n: np.ndarray, t_n: np.ndarray, resamples: Resamples, turns: np.ndarray | None = None
) -> np.ndarray:
    """Spearman's rho, the correlation of mean ranks (Spearman 1904), ranked anew in each resample.

    Args:
        x_n: Estimate.
        t_n: Truth.
        resamples: Of all turns.
        turns: Indices of the turns to rank; None for all.

    Returns:
        [R] 0 if all estimates are equal, since they then say nothing of the order; NaN if all truths are.
    """
    turns = np.arange(len(x_n)) if turns is None else turns
    if not len(turns):
        return np.full(1, np.nan)
    x, t = _Ranked(_rounded(x_n)[turns]), _Ranked(_rounded(t_n)[turns])
    parts = [_correlation(x.ranks(w_Rn), t.ranks(w_Rn), w_Rn) for w_Rn in resamples.weights(turns)]
    return np.concatenate(parts)


def rank_correlations_within(
    x_n: np.ndarray, t_n: np.ndarray, trajectory_n: np.ndarray, is_not_0_n: np.ndarray
) -> np.ndarray:
    """Spearman's rho of the turns of each trajectory with at least `MIN_TURNS` turns, one of which has a truth that is
    known not to be 0; in the others the order is one of noise.

    Args:
        x_n: Estimate.
        t_n: Truth.
        trajectory_n: Trajectory of each turn.
        is_not_0_n: Turns whose truth is known not to be 0 (`is_significant`).

    Returns:
        [n] At the first turn of such a trajectory; NaN elsewhere, so that a mean is over trajectories.
    """
    x_n, t_n = _rounded(x_n), _rounded(t_n)
    values_n = np.full(len(x_n), np.nan)
    for turns in _by_trajectory(trajectory_n):
        if len(turns) >= MIN_TURNS and is_not_0_n[turns].any() and np.ptp(t_n[turns]) > 0:
            ones = np.ones((1, len(turns)))
            x_1n, t_1n = (_Ranked(of_n[turns]).ranks(ones) for of_n in (x_n, t_n))
            values_n[turns[0]] = _correlation(x_1n, t_1n, ones)[0]
    return values_n


def is_significant(t_n: np.ndarray, error_n: np.ndarray) -> np.ndarray:
    """Whether the 95% interval of the truth excludes 0. bool [n]"""
    return np.abs(t_n) > np.maximum(SIGNIFICANT * error_n, 1e-9)


def sign_agreements(x_n: np.ndarray, t_n: np.ndarray, error_n: np.ndarray) -> np.ndarray:
    """Whether the estimate has the sign of the truth, at turns whose 95% interval excludes 0.

    Returns:
        [n] 1 or 0, and 1/2 where the estimate is 0, which has no sign; NaN at the other turns.
    """
    x_n = _rounded(x_n)
    agrees_n = np.where(x_n == 0, 0.5, (np.sign(x_n) == np.sign(t_n)).astype(np.float64))
    return np.where(is_significant(t_n, error_n), agrees_n, np.nan)


def error_share(x_n: np.ndarray, t_n: np.ndarray, error_n: np.ndarray, resamples: Resamples) -> np.ndarray:
    """Mean squared error of the estimate after its best scale, as a share of the truth's mean square, [R].

        b     = max(0, sum x t / sum x^2)
        share = (sum (t - b x)^2 - sum s^2) / (sum t^2 - sum s^2)

    Subtracting s^2 leaves unbiased estimates of both sums for A in place of t. An estimate that says nothing has 1, a
    perfect one 0; noise may put it outside. The truth is not centred: a true advantage is a difference from what the
    policy does on average, so that its mean is 0. NaN if the truth is no larger than its noise.
    """
    xx_R, xt_R = resamples.sums(x_n**2), resamples.sums(x_n * t_n)
    noise_R, square_R = resamples.sums(error_n**2), resamples.sums(t_n**2)
    explained_R = np.divide(np.maximum(xt_R, 0) ** 2, xx_R, out=np.zeros_like(xx_R), where=xx_R > _TINY)
    return _divide(square_R - explained_R - noise_R, square_R - noise_R)


def shares_of_square(x_n: np.ndarray, is_in_n: np.ndarray, resamples: Resamples) -> np.ndarray:
    """Share of the sum of squares that falls on some turns, [R]; NaN if all are 0."""
    return _divide(resamples.sums(np.where(is_in_n, x_n**2, 0)), resamples.sums(x_n**2))


def largest_is_in(x_n: np.ndarray, is_in_n: np.ndarray, trajectory_n: np.ndarray) -> np.ndarray:
    """Whether the turn of a trajectory with the largest |x| is one of some turns.

    Returns:
        [n] At the first turn of each trajectory that has such turns and others: their share of the turns with the
        largest |x|. NaN elsewhere, so that a mean is over trajectories.
    """
    size_n, values_n = np.abs(_rounded(x_n)), np.full(len(x_n), np.nan)
    for turns in _by_trajectory(trajectory_n):
        if is_in_n[turns].any() and not is_in_n[turns].all():
            values_n[turns[0]] = is_in_n[turns][size_n[turns] == size_n[turns].max()].mean()
    return values_n


def slope(x_n: np.ndarray, t_n: np.ndarray, resamples: Resamples) -> np.ndarray:
    """Slope of the regression of the truth on the estimate, [R]; NaN if that does not vary."""
    return _divide(_covariance(x_n, t_n, resamples), _covariance(x_n, x_n, resamples))


def true_correlation(x_n: np.ndarray, t_n: np.ndarray, error_n: np.ndarray, resamples: Resamples) -> np.ndarray:
    """Correlation of the estimate with the truth, whose noise is subtracted from its variance, [R].

    cov(x, t) / sqrt(var x (var t - mean s^2)); NaN if x does not vary, or the truth no more than its noise.
    """
    left_R = np.maximum(_covariance(t_n, t_n, resamples) - resamples.means(error_n**2), 0)
    return _divide(_covariance(x_n, t_n, resamples), np.sqrt(_covariance(x_n, x_n, resamples) * left_R))


def attainable(between_halves: Statistic | None) -> Statistic | None:
    """Correlation of a perfect estimate with a truth whose two halves correlate by r: sqrt(2 r / (1 + r)).

    The whole then has reliability 2 r / (1 + r) (Spearman and Brown 1910), whose root this is. It holds for
    correlations of values, and about for those of ranks. None if r is not above 0.
    """
    if between_halves is None or between_halves.value <= 0:
        return None

    def of(r: float | None) -> float | None:
        return None if r is None else float(np.sqrt(2 * max(r, 0.0) / (1 + max(r, 0.0))))

    value = of(between_halves.value)
    assert value is not None
    return Statistic(value, of(between_halves.low), of(between_halves.high))


class _Ranked:
    """Values whose ranks depend on how often each is there."""

    def __init__(self, values_n: np.ndarray) -> None:
        distinct, self._index_n = np.unique(values_n, return_inverse=True)
        self._order_n = np.argsort(self._index_n, kind="stable")
        self._starts = np.searchsorted(self._index_n[self._order_n], np.arange(len(distinct)))

    def ranks(self, weights_Rn: np.ndarray) -> np.ndarray:
        """Mean ranks, up to a constant, [R, n]."""
        totals = np.add.reduceat(weights_Rn[:, self._order_n], self._starts, axis=1)
        return (totals.cumsum(axis=1) - totals / 2)[:, self._index_n]


def _by_trajectory(trajectory_n: np.ndarray) -> list[np.ndarray]:
    """Indices of the turns of each trajectory, in order."""
    order = np.argsort(trajectory_n, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(trajectory_n[order])) + 1) if len(order) else []


def _rounded(values_n: np.ndarray) -> np.ndarray:
    largest = np.abs(values_n).max(initial=0)
    return np.round(values_n / largest, _ROUNDING) if largest > 0 else values_n


def _correlation(x_Rn: np.ndarray, t_Rn: np.ndarray, weights_Rn: np.ndarray) -> np.ndarray:
    total_R1 = np.maximum(weights_Rn.sum(axis=1, keepdims=True), 1)
    x_Rn = x_Rn - (weights_Rn * x_Rn).sum(axis=1, keepdims=True) / total_R1
    t_Rn = t_Rn - (weights_Rn * t_Rn).sum(axis=1, keepdims=True) / total_R1
    xx_R, tt_R, xt_R = (
        np.einsum("rn,rn,rn->r", weights_Rn, *pair) for pair in ((x_Rn,) * 2, (t_Rn,) * 2, (x_Rn, t_Rn))
    )
    return np.where(tt_R > _TINY, np.where(xx_R > _TINY, _divide(xt_R, np.sqrt(xx_R * tt_R)), 0.0), np.nan)


def _covariance(x_n: np.ndarray, t_n: np.ndarray, resamples: Resamples) -> np.ndarray:
    return resamples.means(x_n * t_n) - resamples.means(x_n) * resamples.means(t_n)


def _divide(above_R: np.ndarray, below_R: np.ndarray) -> np.ndarray:
    return np.divide(above_R, below_R, out=np.full_like(above_R, np.nan), where=below_R > _TINY)
