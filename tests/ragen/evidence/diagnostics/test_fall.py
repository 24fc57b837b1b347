import numpy as np
import pytest

from starpo.ragen.evidence.diagnostics.fall import fall


def _series(values) -> dict[int, float]:
    return {iteration: float(value) for iteration, value in enumerate(values)}


@pytest.mark.parametrize(
    ("values", "at"),  # centred means of five, shorter at the ends
    [
        ([0.8] * 30 + [0.2] * 20, 31),  # 0.44 at 30, 0.32 at 31
        ([0.8] * 5 + [0.0] * 5, 5),  # the fewest points that are enough
        ([0.8] * 5 + [0.7] * 5 + [0.0] * 5, 10),  # 0.42 at 9, 0.28 at 10
        ([1.0] + [0.6] * 4 + [0.33] * 8, 7),  # the peak is the first mean, of three points: 0.73
    ],
)
def test_fall_starts_below_half_peak(values, at):
    assert fall(_series(values)) == at


@pytest.mark.parametrize(
    "values",
    [
        [0.8] * 30 + [0.2] * 10 + [0.8] * 10,  # it recovers
        [1.0] * 30 + [0.5] * 20,  # falls to exactly half
        [0.8] * 46 + [0.2] * 3,  # too few points after the fall
        [0.8] * 4 + [0.0] * 5,  # too few points
        np.linspace(0.1, 0.9, 50),
    ],
)
def test_no_fall(values):
    assert fall(_series(values)) is None


def test_fall_counts_from_last_half_peak():
    values = [0.8] * 20 + [0.1] * 10 + [0.8] * 10 + [0.1] * 20
    assert 40 <= fall(_series(values)) <= 42
