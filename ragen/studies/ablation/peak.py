"""The best of several checkpoints, and how much of it is luck: pure functions of success prompt by prompt.

The largest of many noisy measurements is, on average, larger than what it measures. A peak is therefore shown beside
the last checkpoint, never instead of it, and beside a second number without that bias.
"""

import numpy as np


def peak(rates: np.ndarray) -> tuple[int, float]:
    """The best checkpoint on average over seeds and prompts; the earliest of equals.

    Args:
        rates: Success rates, NaN where not measured. [checkpoints, seeds, prompts]

    Returns:
        Its index, and its mean success, which is biased upwards.
    """
    means = np.nanmean(rates, axis=(1, 2))
    best = int(np.argmax(means))
    return best, float(means[best])


def cross_fitted_peak(rates: np.ndarray) -> float | None:
    """Success at the checkpoint that the other half of the prompts would have chosen; the mean of both halves.

    Prompts 0, 2, 4, ... choose a checkpoint and 1, 3, 5, ... measure it, and the other way round. What chose it has no
    part in the measurement, so its luck is not in the number; it says what picking a checkpoint on one panel gives on
    another.

    Args:
        rates: Success rates, NaN where not measured. [checkpoints, seeds, prompts]

    Returns:
        None with fewer than two prompts.
    """
    halves = rates[:, :, 0::2], rates[:, :, 1::2]
    if any(half.shape[2] == 0 or not np.isfinite(half).any(axis=(1, 2)).all() for half in halves):
        return None
    measured = [np.nanmean(test[peak(choose)[0]]) for choose, test in (halves, halves[::-1])]
    return float(np.mean(measured))
