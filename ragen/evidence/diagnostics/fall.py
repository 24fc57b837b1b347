"""When a run fell, in hindsight: series of training success -> iteration at which it had halved for good."""

import numpy as np

from starpo.ragen.learning.metrics.table import Series

_WINDOW = 5
"""Width of the centred mean used to detect a fall, and the minimum number of points below half of the peak."""
MIN_POINTS = 2 * _WINDOW
"""Minimum number of success values for a run to be judged."""


def fall(success: Series) -> int | None:
    """Find when success had halved for good, in hindsight.

    The curve is smoothed by a centred mean of five points, which does not lag: a lag would make every alarm look
    earlier than it is.

    Args:
        success: Training success, by iteration.

    Returns:
        The first iteration after the peak from which success stays below half of the peak, for at least five points.
        None if there is no such iteration, or fewer than ten points.
    """
    if len(success) < MIN_POINTS:
        return None
    iterations, values = list(success), np.array(list(success.values()))
    reach = _WINDOW // 2
    smooth = np.array([values[max(0, point - reach) : point + reach + 1].mean() for point in range(len(values))])
    peak = int(smooth.argmax())
    above = np.flatnonzero(smooth >= 0.5 * smooth[peak])
    start = int(above[-1]) + 1
    return iterations[start] if len(values) - start >= _WINDOW else None
