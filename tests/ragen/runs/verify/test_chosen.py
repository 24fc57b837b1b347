"""Selection of iterations to verify."""

import pytest

from starpo.ragen.runs.verify.chosen import chosen_iterations


@pytest.mark.parametrize(("share", "expected"), [(0.2, [2, 7]), (0.1, [5]), (0.001, [5]), (1.0, list(range(10)))])
def test_a_sample_is_evenly_spread(share, expected):
    assert sorted(chosen_iterations("mine", range(10), share=share)) == expected


def test_range_covers_recorded_iterations_only():
    assert chosen_iterations("mine", [0, 1, 4], first=1) == {1, 4}
    assert chosen_iterations("mine", [0, 1, 4], last=3) == {0, 1}
