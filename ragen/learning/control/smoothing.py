"""Exponential moving average with bias correction, used to smooth all curves of a run (RAGEN, training settings)."""

from collections.abc import Sequence

import numpy as np


def exponential_moving_average(values: Sequence[float] | np.ndarray, decay: float = 0.9) -> np.ndarray:
    """Smooth a curve without lag at its beginning.

        m_t = decay * m_{t-1} + (1 - decay) * x_t,  m_0 = 0,   smoothed_t = m_t / (1 - decay**t),  t = 1, 2, ...

    The division (Adam, arXiv 1412.6980, section 3) makes the weights of x_1 ... x_t add up to 1, so the first smoothed
    value is x_1 and a constant curve is unchanged. A smoothed value depends only on points up to its own: extending the
    curve does not change earlier values. Points are assumed to be evenly spaced.

    Args:
        values: [points], finite.
        decay: In [0, 1). 0 leaves the curve unchanged; the average looks back about 1 / (1 - decay) points.

    Returns:
        float64 [points]; empty for an empty curve.

    Raises:
        ValueError: If decay is not in [0, 1).
    """
    if not 0.0 <= decay < 1.0:
        raise ValueError(f"decay = {decay} must be at least 0 and below 1")
    smoothed = np.empty(len(values))
    average, weight = 0.0, 0.0
    for t, value in enumerate(values):
        average = decay * average + (1 - decay) * value
        weight = decay * weight + (1 - decay)
        smoothed[t] = average / weight
    return smoothed
