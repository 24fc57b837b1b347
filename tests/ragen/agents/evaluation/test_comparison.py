"""Differences of two evaluations: paired where they share initial states, and never surer than the counts allow."""

import pytest

from starpo.ragen.agents.evaluation.comparison import compare_counts, paired_comparison
from starpo.ragen.agents.evaluation.intervals import wilson_interval


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


def test_paired_interval_by_hand():
    # differences 1, 0, 0, 1: mean 1/2, sd sqrt(1/3); t of 3 degrees 3.1824: half 3.1824 * sqrt(1/3) / 2 = 0.9187
    comparison = paired_comparison([(panel([1, 1, 0, 1]), panel([0, 1, 0, 0]))], reach=None)
    assert (comparison.low, comparison.high) == pytest.approx((0.5 - 0.9187, 0.5 + 0.9187), abs=2e-3)
    assert (comparison.num_pairs, comparison.num_up, comparison.num_down) == (4, 2, 0)
    assert comparison.num_needed == 11  # 4 * (2.8016 * 0.28868 / 0.5)^2 = 10.47
    assert compare_counts(panel([1, 1, 0, 1]), panel([0, 1, 0, 0])).high == 1.0  # no success is above 1


def test_equal_everywhere_is_not_certain():
    # none of 8 prompts differs, so a share up to Wilson's bound of 0 in 8 may: 0 -+ 0.3244; returns: times their range
    bound = wilson_interval(0, 8)[1]
    zero = compare_counts(panel([1] * 8), panel([1] * 8))
    assert (zero.mean, zero.low, zero.high, zero.num_needed) == pytest.approx((0.0, -bound, bound, None))
    returns = {prompt: (5.0 * prompt[0], 1) for prompt in panel([0] * 8)}
    assert paired_comparison([(returns, returns)], reach=None).high == pytest.approx(35 * bound)


def test_panels_weigh_the_same():
    """Differences of 1/2 on 4 states and of 0 on 100: 1/4, not 2/104."""
    small, large = panel([1, 1, 0, 0]), panel([0, 1] * 50)
    comparison = paired_comparison([(small, panel([0] * 4)), (large, large)])
    assert comparison.mean == pytest.approx(0.25)
    assert (comparison.num_pairs, comparison.num_up, comparison.num_down) == (104, 2, 0)
    assert comparison.p_value == 0.5  # two states differ, by the same: 2 / 2^2
    assert paired_comparison([(small, panel([0] * 4)), (large, {})]) is None


def test_other_initial_states_are_not_paired():
    # Newcombe's own example: 56/70 and 48/80 differ by 0.2 [0.0524, 0.3339] (1998, Table II, method 10)
    comparison = compare_counts(panel([1] * 56 + [0] * 14), panel([1] * 48 + [0] * 32, start=1000))
    assert comparison.num_pairs == 0
    assert (comparison.mean, comparison.low, comparison.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    assert comparison.p_value == pytest.approx(0.0080, abs=1e-3)
    assert compare_counts(panel([1, 0]), {}) is None
