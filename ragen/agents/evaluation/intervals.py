"""Confidence intervals of a success rate, and unbiased pass@k: pure functions of counts.

Which interval is right depends on what was sampled. With one episode per prompt, episodes are independent, and Wilson's
interval is valid. With several episodes per prompt, outcomes of the same prompt are correlated, and an interval that
treats them as independent is too narrow; Wilson's is then taken with fewer episodes, as many as they are worth.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from starpo.ragen.agents.evaluation.clusters import cluster_mean, student_quantile

Interval = tuple[float, float]
"""Lower and upper bound of a share, in [0, 1]."""


def wilson_interval(num_successes: int, num_trials: int, confidence: float = 0.95) -> Interval:
    """Wilson score interval of a share (Wilson 1927).

        centre = (p + z^2/2n) / (1 + z^2/n)
        half   = z / (1 + z^2/n) * sqrt(p (1 - p) / n + z^2 / 4n^2)

    Unlike p +- z * sqrt(p (1 - p) / n), it stays in [0, 1] and has a positive width at p = 0 and p = 1.

    Args:
        num_successes: At most `num_trials`.
        num_trials: Number of independent trials; with 0, the interval is (0, 1).
        confidence: Between 0 and 1.

    Raises:
        ValueError: If the counts contradict each other.
    """
    if not 0 <= num_successes <= num_trials:
        raise ValueError(f"{num_successes} successes in {num_trials} trials: expected 0 <= successes <= trials")
    if num_trials == 0:
        return 0.0, 1.0
    return _wilson(num_successes / num_trials, num_trials, confidence)


def success_interval(
    num_successes: Sequence[int] | np.ndarray, num_trials: Sequence[int] | np.ndarray, confidence: float = 0.95
) -> Interval:
    """Interval of a success rate over prompts: Wilson's, with the number of independent episodes that they are worth.

        n* = min(p (1 - p) / error^2, episodes) * (z / t)^2

    with the error of p over clusters (`clusters`), and the normal and Student's quantile (Korn and Graubard 1998; Dean
    and Pagano 2015). With one episode per prompt it is Wilson's of the counts. If all prompts have the same rate, their
    error of 0 would claim certainty; then each prompt counts as one trial, as if its episodes were copies.

    Args:
        num_successes: Successes of each prompt. [prompts]
        num_trials: Episodes of each prompt, at least 1. Without prompts, the interval is (0, 1). [prompts]
        confidence: Between 0 and 1.

    Raises:
        ValueError: If a prompt has no trial, or more successes than trials.
    """
    successes, trials = np.asarray(num_successes, dtype=np.float64), np.asarray(num_trials, dtype=np.float64)
    if successes.shape != trials.shape or (trials < 1).any() or (successes > trials).any() or (successes < 0).any():
        raise ValueError("expected for every prompt 0 <= successes <= trials and at least 1 trial")
    num_prompts = len(trials)
    if num_prompts == 0:
        return 0.0, 1.0
    if (trials == 1).all():
        return wilson_interval(int(successes.sum()), num_prompts, confidence)
    share, error = cluster_mean(successes, trials)
    if np.ptp(successes / trials) == 0.0:
        return _wilson(share, num_prompts, confidence)
    quantile = 0.5 + confidence / 2
    narrowing = NormalDist().inv_cdf(quantile) / student_quantile(quantile, num_prompts - 1)
    num_independent = min(share * (1 - share) / error**2, float(trials.sum())) * narrowing**2
    return _wilson(share, num_independent, confidence)


def mean_interval(
    shares: Sequence[float], intervals: Sequence[Interval], least: float = 0.0, most: float = 1.0
) -> Interval:
    """Interval of the mean of independent shares from their own intervals (Zou and Donner 2008, MOVER).

        low  = mean - sqrt(sum_e (p_e - low_e)^2) / E
        high = mean + sqrt(sum_e (high_e - p_e)^2) / E

    with E shares p_e. Unlike a normal interval, it is as asymmetric as its parts, and it has a positive width at shares
    of 0 and 1.

    Args:
        shares: At least one share. [E]
        intervals: Interval of each share, all with the same confidence level, which is that of the result. [E]
        least: Smallest possible share; -1 for differences of shares.
        most: Largest.
    """
    mean = math.fsum(shares) / len(shares)
    below = math.hypot(*(share - low for share, (low, _) in zip(shares, intervals, strict=True)))
    above = math.hypot(*(high - share for share, (_, high) in zip(shares, intervals, strict=True)))
    return max(least, mean - below / len(shares)), min(most, mean + above / len(shares))


def pass_at_k(num_trials: Sequence[int] | np.ndarray, num_successes: Sequence[int] | np.ndarray, k: int) -> float:
    """Unbiased estimate of the probability that at least one of k episodes succeeds (Chen et al. 2021, Eq. 1).

        pass@k = mean over prompts of 1 - C(n - c, k) / C(n, k)

    with n episodes of the prompt, c of which succeeded.

    Args:
        num_trials: n of each prompt. [prompts]
        num_successes: c of each prompt. [prompts]
        k: Between 1 and the smallest n.

    Raises:
        ValueError: If there is no prompt, or one has fewer than k episodes.
    """
    if k < 1 or len(num_trials) == 0 or min(num_trials) < k:
        raise ValueError(f"pass@{k} needs at least one prompt, and at least {max(k, 1)} episodes of every prompt")
    counts = zip(num_trials, num_successes, strict=True)
    return sum(1 - math.comb(int(n) - int(c), k) / math.comb(int(n), k) for n, c in counts) / len(num_trials)


def _wilson(share: float, num_trials: float, confidence: float) -> Interval:
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    spread = 1 + z**2 / num_trials
    centre = (share + z**2 / (2 * num_trials)) / spread
    half = z / spread * math.sqrt(share * (1 - share) / num_trials + z**2 / (4 * num_trials**2))
    # At share 0 the lower bound is 0, and at share 1 the upper bound is 1: rounding must not put the share outside.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))
