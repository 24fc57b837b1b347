"""The weight of an entropy bonus that aims at a target, by hand."""

import pytest

from starpo.ragen.learning.objectives.entropy_target import steer


def test_level_follows_the_entropy():
    # target 0.5, step 0.1: below twice, above, below, at the target
    level, coefficients, levels = 0.0, [], []
    for entropy in (0.4, 0.3, 0.6, 0.4, 0.5):
        coefficient, level = steer(level, entropy, 0.5, 0.1)
        coefficients.append(coefficient)
        levels.append(level)
    assert levels == pytest.approx([0.1, 0.2, 0.1, 0.2, 0.2])
    assert coefficients == pytest.approx([0, 0.1, 0, 0.1, 0.2])


@pytest.mark.parametrize(("level", "entropy", "expected"), [(0.05, 0.9, 0.0), (0.95, 0.1, 1.0)])
def test_level_stays_within_bounds(level, entropy, expected):
    assert steer(level, entropy, 0.5, 0.1)[1] == expected
