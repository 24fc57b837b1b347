"""The best of several checkpoints, with and without selection bias: pure functions of the success on each prompt.

The largest of many noisy measurements is, on average, larger than the quantity it measures. A peak is therefore shown
beside the last checkpoint, never instead of it, and beside a second number without that bias.
"""

import numpy as np

_ROUNDING = 1e-12
"""Means closer together than this are ties."""


def peak(rates: np.ndarray) -> tuple[int, float]:
    """Find the best checkpoint on average over seeds and prompts; the earliest in case of ties.

    Args:
        rates: Success rates, NaN if not measured. [checkpoints, seeds, prompts]

    Returns:
        Its index, and its mean success, which is biased upwards.
    """
    means = np.nanmean(rates, axis=(1, 2))
    best = int(np.argmax(means >= means.max() - _ROUNDING))
    return best, float(means[best])


def cross_fitted_peak(rates: np.ndarray) -> float | None:
    """Measure success at the checkpoint that the other half of the prompts selects; the mean of both halves.

    Prompts 0, 2, 4, ... select a checkpoint and 1, 3, 5, ... measure it, and vice versa. The selecting prompts take no
    part in the measurement, so it has no selection bias: it estimates the success on one panel of a checkpoint that was
    selected on another.

    Args:
        rates: Success rates, NaN if not measured. [checkpoints, seeds, prompts]

    Returns:
        None with fewer than two prompts, or if a checkpoint was not measured on one of the halves.
    """
    halves = rates[:, :, 0::2], rates[:, :, 1::2]
    if any(half.shape[2] == 0 or not np.isfinite(half).any(axis=(1, 2)).all() for half in halves):
        return None
    measured = [np.nanmean(test[peak(choose)[0]]) for choose, test in (halves, halves[::-1])]
    return float(np.mean(measured))
