import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.control.smoothing import exponential_moving_average

curves = st.lists(st.floats(-100, 100), max_size=30)


def test_three_points_by_hand():
    # decay 0.5 on 2, 4, 8:
    #   m_1 = 1,   weight 0.5    -> 2
    #   m_2 = 2.5, weight 0.75   -> 10/3
    #   m_3 = 5.25, weight 0.875 -> 6
    np.testing.assert_allclose(exponential_moving_average([2, 4, 8], decay=0.5), [2, 10 / 3, 6], rtol=1e-12)


@pytest.mark.ci
@given(curves)
def test_zero_decay_keeps_the_curve(values):
    np.testing.assert_allclose(exponential_moving_average(values, 0.0), values)


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_decay_out_of_bounds_is_refused(decay):
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        exponential_moving_average([1.0], decay)
