"""Differences of two evaluations: paired where they share initial states, and never surer than the counts allow."""

import numpy as np
import pytest

from starpo.ragen.agents.evaluation.comparison import compare_counts, sign_test


def panel(successes, start=0):
    """One episode a prompt."""
    return {(seed, f"state {seed}"): (int(success), 1) for seed, success in enumerate(successes, start)}


def test_small_change_is_no_change():
    base = panel([1] * 3 + [0] * 21)
    comparison = compare_counts(panel([1] * 4 + [0] * 20), base)
    assert comparison.mean == pytest.approx(1 / 24)
    assert comparison.num_pairs == 24
    assert not comparison.is_apart
    assert comparison.p_value == 1.0  # one prompt differs: 2 * 1/2


def test_paired_difference_is_apart():
    # 12 prompts are gained and none is lost: p = 2 / 2**12
    comparison = compare_counts(panel([1] * 15 + [0] * 9), panel([1] * 3 + [0] * 21))
    assert comparison.is_apart
    assert comparison.p_value == pytest.approx(2 / 2**12)


def test_the_sign_test_by_hand():
    # 1 down, 4 up: 2 * (1 + 5) / 32
    assert sign_test(np.array([1.0, 1.0, 0.0, -1.0, 0.5, 0.25])) == pytest.approx(12 / 32)
    assert sign_test(np.zeros(3)) == 1.0


def test_other_initial_states_are_not_paired():
    # Newcombe's own example: 56/70 and 48/80 differ by 0.2 [0.0524, 0.3339] (1998, Table II, method 10)
    comparison = compare_counts(panel([1] * 56 + [0] * 14), panel([1] * 48 + [0] * 32, start=1000))
    assert comparison.num_pairs == 0
    assert (comparison.mean, comparison.low, comparison.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    assert comparison.p_value == pytest.approx(0.0080, abs=1e-3)
    assert compare_counts(panel([1, 0]), {}) is None
