"""Means over clusters: the episodes of one initial state are a cluster, whatever number of seeds and members it has.

    mean  = sum_g S_g / sum_g n_g                                 sum S_g and number n_g of values of cluster g
    error = sqrt(G / (G - 1) sum_g (S_g - n_g mean)^2) / sum_g n_g     (Liang and Zeger 1986, corrected for G clusters)

Episodes of one state succeed and fail together, so an error over episodes would be too small; Miller 2024, "Adding
error bars to evals" (Section 2.2). Few clusters have an uncertain error: quantiles are Student's, with G - 1 degrees of
freedom. docs/intervals.md has the measured coverage.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

Values = Sequence[float] | np.ndarray


def cluster_mean(sums: Values, sizes: Values) -> tuple[float, float]:
    """Compute the mean of all values and its standard error.

    Args:
        sums: Sum of the values of each cluster, at least one cluster. [clusters]
        sizes: Number of its values, at least 1. [clusters]

    Returns:
        Mean, and its standard error; the latter is infinite for a single cluster.
    """
    sums, sizes = np.asarray(sums, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    mean, number = sums.sum() / sizes.sum(), len(sums)
    if number == 1:
        return float(mean), math.inf
    squares = ((sums - sizes * mean) ** 2).sum()
    return float(mean), math.sqrt(number / (number - 1) * squares) / float(sizes.sum())


def mean_t_interval(sums: Values, sizes: Values, confidence: float = 0.95) -> tuple[float, float] | None:
    """Interval of a mean over clusters, mean -+ t error.

    Args:
        sums: As for `cluster_mean`. [clusters]
        sizes: As for `cluster_mean`. [clusters]
        confidence: Between 0 and 1.

    Returns:
        None if the clusters do not show how much they vary: there is only one, or all have the same mean.
    """
    mean, error = cluster_mean(sums, sizes)
    means = np.asarray(sums, dtype=np.float64) / np.asarray(sizes)
    if len(means) == 1 or np.ptp(means) <= 1e-12 * np.abs(means).max():
        return None
    half = student_quantile(0.5 + confidence / 2, len(means) - 1) * error
    return mean - half, mean + half


def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t, for a probability of at least 1/2.

    Exact for one and two degrees of freedom; otherwise the expansion of Fisher and Cornish 1960 (Abramowitz and Stegun
    26.7.5), whose error at 0.975 is 0.1% for three degrees and less for more.

    Args:
        probability: At least 1/2, below 1.
        degrees: Degrees of freedom, at least 1.
    """
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return z + sum(term / degrees**power for power, term in enumerate(terms, start=1))
