import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.agents.evaluation.clusters import cluster_mean, mean_t_interval, student_quantile


def test_cluster_mean_by_hand() -> None:
    # sums 3, 1, 2 of 2, 2, 2 values: mean 1; squares 1 + 1 + 0 = 2; error sqrt(3/2 * 2) / 6
    assert cluster_mean([3, 1, 2], [2, 2, 2]) == pytest.approx((1.0, math.sqrt(3) / 6))
    assert cluster_mean([3], [2]) == (1.5, math.inf)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20))
def test_single_values_have_standard_error(values: list[float]) -> None:
    mean, error = cluster_mean(values, [1] * len(values))
    assert mean == pytest.approx(np.mean(values), abs=1e-9)
    assert error == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), abs=1e-9)


def test_copies_of_values_add_nothing() -> None:
    values = np.array([1.0, 4.0, 2.5, 7.0])
    assert mean_t_interval(8 * values, [8] * 4) == pytest.approx(mean_t_interval(values, [1] * 4))


def test_no_spread_gives_no_interval() -> None:
    assert mean_t_interval([3.0], [2]) is None
    assert mean_t_interval([0.3, 0.3, 0.1 * 6], [1, 1, 2]) is None


@pytest.mark.parametrize(
    ("degrees", "quantile"),  # of a table of Student's t
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (10, 2.2281), (30, 2.0423), (100, 1.9840), (10**6, 1.9600)],
)
def test_student_quantile_as_in_tables(degrees: int, quantile: float) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(quantile, rel=1.2e-3)
