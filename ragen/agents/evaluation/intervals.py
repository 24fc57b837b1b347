"""Confidence intervals of a success rate, and unbiased pass@k: pure functions of counts.

Which interval is right depends on what was sampled. With one episode per prompt, episodes are independent, and Wilson's
interval is valid. With several episodes per prompt, outcomes of the same prompt are correlated, and an interval that
treats them as independent is too narrow; whole prompts are resampled instead.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

Interval = tuple[float, float]
"""Lower and upper bound of a share, in [0, 1]."""

_RESAMPLES_AT_ONCE = 256


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


def cluster_bootstrap_interval(
    num_successes: Sequence[int] | np.ndarray,
    num_trials: Sequence[int] | np.ndarray,
    seed: int,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
) -> Interval:
    """Percentile interval of a success rate from resampling whole prompts with replacement (Efron 1979).

    The rate of a resample is its successes divided by its trials, so prompts are weighted by their episodes. If all
    prompts have the same rate, the bootstrap interval has zero width, which would claim certainty; then the interval is
    Wilson's with one trial per prompt, as if a prompt's episodes were copies of each other.

    Args:
        num_successes: Successes of each prompt. [prompts]
        num_trials: Episodes of each prompt, at least 1. Without prompts, the interval is (0, 1). [prompts]
        seed: Seed of the resampling; the same seed gives the same interval.
        confidence: Between 0 and 1.
        num_resamples: Number of resamples.

    Raises:
        ValueError: If a prompt has no trial, or more successes than trials.
    """
    successes, trials = np.asarray(num_successes, dtype=np.float64), np.asarray(num_trials, dtype=np.float64)
    if successes.shape != trials.shape or (trials < 1).any() or (successes > trials).any() or (successes < 0).any():
        raise ValueError("expected for every prompt 0 <= successes <= trials and at least 1 trial")
    num_prompts = len(trials)
    if num_prompts == 0:
        return 0.0, 1.0
    if np.ptp(successes / trials) == 0.0:
        return _wilson(float(successes[0] / trials[0]), num_prompts, confidence)
    random = np.random.default_rng(seed)
    rates = []
    for start in range(0, num_resamples, _RESAMPLES_AT_ONCE):
        count = min(_RESAMPLES_AT_ONCE, num_resamples - start)
        drawn = random.integers(num_prompts, size=(count, num_prompts))
        rates.append(successes[drawn].sum(axis=1) / trials[drawn].sum(axis=1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(rates), [tail, 1 - tail])
    return float(low), float(high)


def success_interval(
    num_successes: Sequence[int] | np.ndarray,
    num_trials: Sequence[int] | np.ndarray,
    seed: int,
    confidence: float = 0.95,
) -> Interval:
    """Interval of a success rate over prompts: Wilson's if every prompt has one episode, otherwise from resampling.

    Args:
        num_successes: Successes of each prompt. [prompts]
        num_trials: Episodes of each prompt, at least 1. Without prompts, the interval is (0, 1). [prompts]
        seed: Seed of the resampling.
        confidence: Between 0 and 1.

    Raises:
        ValueError: As for `cluster_bootstrap_interval`.
    """
    trials = np.asarray(num_trials)
    if trials.size and (trials == 1).all():
        return wilson_interval(int(np.sum(num_successes)), len(trials), confidence)
    return cluster_bootstrap_interval(num_successes, num_trials, seed, confidence)


def mean_interval(shares: Sequence[float], intervals: Sequence[Interval], least: float = 0.0) -> Interval:
    """Interval of the mean of independent shares from their own intervals (Zou and Donner 2008, MOVER).

        low  = mean - sqrt(sum_e (p_e - low_e)^2) / E
        high = mean + sqrt(sum_e (high_e - p_e)^2) / E

    with E shares p_e. Unlike a normal interval, it is as asymmetric as its parts, and it has a positive width at shares
    of 0 and 1.

    Args:
        shares: At least one share. [E]
        intervals: Interval of each share, all with the same confidence level, which is that of the result. [E]
        least: Smallest possible share; -1 for differences of shares.
    """
    mean = math.fsum(shares) / len(shares)
    below = math.hypot(*(share - low for share, (low, _) in zip(shares, intervals, strict=True)))
    above = math.hypot(*(high - share for share, (_, high) in zip(shares, intervals, strict=True)))
    return max(least, mean - below / len(shares)), min(1.0, mean + above / len(shares))


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


def _wilson(share: float, num_trials: int, confidence: float) -> Interval:
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    spread = 1 + z**2 / num_trials
    centre = (share + z**2 / (2 * num_trials)) / spread
    half = z / spread * math.sqrt(share * (1 - share) / num_trials + z**2 / (4 * num_trials**2))
    # At share 0 the lower bound is 0, and at share 1 the upper bound is 1: rounding must not put the share outside.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))
