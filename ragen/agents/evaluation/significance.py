"""Whether chance alone explains a paired difference, also if it is one of many; and how many states would tell.

differences by state -> sign_flip_test -> p-values -> holm
difference, its standard error -> states_needed
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

NUM_FLIPS = 9_999
SEED = 20_250_424
ALPHA = 0.05
POWER = 0.8
_NUMBERS_AT_ONCE = 1 << 20
_DIGITS = 12
"""Differences that agree to this many decimals are equal: the order of a sum changes how it rounds."""
_MAX_UNITS = 1 << 15
_SAME = 1e-9
"""Rounding, as a share of the sum of all differences."""


def sign_flip_test(differences: np.ndarray) -> float:
    """Two-sided p-value of the sum of differences, if each was as likely to have had the opposite sign.

    p = share of all signs with |sum_i s_i d_i| >= |sum_i d_i|,   s_i = -1 or 1

    The permutation test of paired samples (Fisher 1935); for differences of one size it is the sign test, and for one
    episode per state McNemar 1947. Exact if the differences are multiples of a unit, as those of success rates and of
    most returns are; otherwise (1 + number of such signs) / (1 + NUM_FLIPS) of signs that are drawn with a fixed seed.

    Args:
        differences: One number for each state, weighted if the weights of states differ. [states]
    """
    differences = np.asarray(differences, dtype=np.float64).round(_DIGITS)
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    if unit := _unit(np.abs(differences)):
        return _exact((differences / unit).round().astype(np.int64))
    random, num_reached, sum_ = np.random.default_rng(SEED), 0, differences.sum()
    at_once = max(1, _NUMBERS_AT_ONCE // len(differences))
    for start in range(0, NUM_FLIPS, at_once):
        is_flipped = random.integers(0, 2, (min(at_once, NUM_FLIPS - start), len(differences)), dtype=np.uint8)
        sums = sum_ - 2 * (is_flipped @ differences)
        num_reached += int((np.abs(sums) >= abs(sum_) - 10**-_DIGITS * len(differences)).sum())
    return (1 + num_reached) / (1 + NUM_FLIPS)


def _unit(sizes: np.ndarray) -> float | None:
    """Return the largest number of which all sizes are multiples (Euclid); None if they have too many units to count.

    Args:
        sizes: Above 0. [states]
    """
    total, unit = float(sizes.sum()), 0.0
    for size in map(float, np.unique(sizes)):
        while size > _SAME * total:
            unit, size = size, abs(math.remainder(unit, size))
        if total > _MAX_UNITS * unit:
            return None
    return unit


def _exact(differences: np.ndarray) -> float:
    """Compute the p-value of whole numbers from the distribution of the sum of those whose sign is flipped."""
    total, reach, so_far = int(np.abs(differences).sum()), abs(int(differences.sum())), 0
    shares, longer = np.zeros(total + 1), np.zeros(total + 1)
    shares[0] = 1.0
    for size in map(int, np.sort(np.abs(differences))):
        longer[: so_far + size + 1] = shares[: so_far + size + 1]  # not flipped
        longer[size : so_far + size + 1] += shares[: so_far + 1]  # flipped
        so_far += size
        longer[: so_far + 1] *= 0.5
        shares, longer = longer, shares
        longer[: so_far + 1] = 0.0
    tail = (total - reach) // 2 + 1  # the distribution is symmetric
    return min(1.0, 2 * float(shares[:tail].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values of several hypotheses, so that any is below alpha by chance with probability alpha (Holm 1979).

        adjusted of the i-th smallest = max over j <= i of min(1, (m - j + 1) p_(j))

    Args:
        p_values: P-values of all m hypotheses that could have been looked at: of a comparison with the best of k, those
            of all k (k - 1) / 2 pairs. [hypotheses]

    Returns:
        Aligned with `p_values`.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def states_needed(num_states: int, difference: float, error: float) -> int | None:
    """Number of states at which a difference of this size would be told apart from none.

        n = num_states ((z_(1 - alpha/2) + z_power) error / difference)^2

    with alpha = 5%, two-sided, and a power of 80% (Miller 2024, "Adding error bars to evals", Section 5).

    Args:
        num_states: Number of states of the measurement.
        difference: Measured mean difference, taken for the true one.
        error: Its standard error there.

    Returns:
        None if the difference is 0, or its error is not known.
    """
    if not difference or not error or not math.isfinite(error):
        return None
    normal = NormalDist()
    distance = normal.inv_cdf(1 - ALPHA / 2) + normal.inv_cdf(POWER)
    return math.ceil(num_states * (distance * error / difference) ** 2)
