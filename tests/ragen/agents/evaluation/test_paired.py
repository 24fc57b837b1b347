import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from starpo.ragen.agents.evaluation.intervals import wilson_interval
from starpo.ragen.agents.evaluation.paired import paired_difference

RATES = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=st.sampled_from([0.0, 0.5, 1.0]))


def test_difference_by_hand():
    # Seed 0: 1-0, 1-1, 0-0 -> 1/3. Seed 1: 1-0, 0-1, 1-0 -> 1/3. All six pairs: 2/6.
    difference = paired_difference(np.array([[1, 1, 0], [1, 0, 1]]), np.array([[0, 1, 0], [0, 1, 0]]))
    assert difference.mean == pytest.approx(1 / 3)
    assert difference.per_seed == pytest.approx((1 / 3, 1 / 3))
    assert difference.num_prompts == 3
    assert difference.low < 1 / 3 < difference.high


def test_one_seed_interval_bootstraps_prompts():
    # One seed: a resample is the mean of n draws from the differences, so the standard error is sd / sqrt(n).
    # 200 prompts, 60 of them +1, 20 of them -1: mean 0.2, sd sqrt(0.4 - 0.04) = 0.6; 1.96 * 0.6 / sqrt(200) = 0.0832.
    difference = np.array([1.0] * 60 + [-1.0] * 20 + [0.0] * 120)
    interval = paired_difference(np.maximum(difference, 0)[None], np.maximum(-difference, 0)[None])
    assert (interval.low, interval.high) == pytest.approx((0.2 - 0.0832, 0.2 + 0.0832), abs=0.006)


def test_disagreeing_seeds_widen_interval():
    # No spread over prompts: a resample is the mean of two draws from (0, 0.5), so 0, 0.25 or 0.5.
    difference = paired_difference(np.repeat([[0.0], [0.5]], 50, axis=1), np.zeros((2, 50)))
    assert (difference.mean, difference.low, difference.high) == pytest.approx((0.25, 0.0, 0.5))


def test_common_prompt_difficulty_cancels():
    """Half of the prompts fail in both cells and half succeed: noise if unpaired, none if paired."""
    hard = np.tile([0.0, 1.0], (3, 100))
    better = hard.copy()
    better[:, 0] = 1.0  # one of the hard prompts
    difference = paired_difference(better, hard)
    assert difference.mean == pytest.approx(1 / 200)
    assert difference.high - difference.low < 0.02


def test_the_same_everywhere_is_not_certain():
    # None of 8 prompts differs, so a share up to Wilson's bound of 0 in 8 may differ: 0 -+ 0.3244.
    bound = wilson_interval(0, 8)[1]
    zero = paired_difference(np.ones((3, 8)), np.ones((3, 8)))
    assert (zero.mean, zero.low, zero.high) == pytest.approx((0.0, -bound, bound))
    one = paired_difference(np.ones((3, 8)), np.zeros((3, 8)))
    assert (one.mean, one.low, one.high) == pytest.approx((1.0, 1 - 2 * bound, 1.0))


def test_rate_interval_symmetric_at_ends():
    """A rate is a difference to a base of zeros, and unseen prompts cannot succeed less often than never."""
    nothing = np.zeros((3, 256))
    always, never = (paired_difference(rates, nothing, least=0.0) for rates in (np.ones((3, 256)), nothing))
    unseen = wilson_interval(0, 256)[1]
    assert (always.low, always.high) == pytest.approx((1 - unseen, 1.0))
    assert (never.low, never.high) == pytest.approx((0.0, unseen))


def test_incomplete_pairs_are_left_out():
    nan = float("nan")
    cell = np.array([[1.0, nan, 0.0, 1.0], [1.0, 0.0, nan, 1.0]])
    base = np.array([[0.0, 1.0, 0.0, nan], [0.0, 1.0, 1.0, nan]])
    difference = paired_difference(cell, base)  # pairs: +1, 0 | +1, -1
    assert difference.mean == pytest.approx(1 / 4)
    assert difference.per_seed == pytest.approx((1 / 2, 0.0))
    assert difference.num_prompts == 3


@given(RATES, st.data())
def test_difference_is_bounded_and_antisymmetric(cell, data):
    base = data.draw(arrays(np.float64, cell.shape, elements=st.sampled_from([0.0, 0.5, 1.0])))
    difference = paired_difference(cell, base, num_resamples=200)
    assert difference == paired_difference(cell, base, num_resamples=200)
    assert -1.0 - 1e-12 <= difference.low <= difference.high <= 1.0 + 1e-12
    back = paired_difference(base, cell, num_resamples=200)
    assert (back.mean, back.low, back.high) == pytest.approx((-difference.mean, -difference.high, -difference.low))


def test_interval_coverage_as_stated():
    """200 simulated ablations of 4 seeds and 64 prompts, with a true difference of 0.1 and no spread over seeds."""
    random = np.random.default_rng(7)
    held = 0
    for trial in range(200):
        base, cell = (random.random((4, 64)) < rate for rate in (0.4, 0.5))
        interval = paired_difference(cell.astype(float), base.astype(float), seed=trial, num_resamples=400)
        held += interval.low <= 0.1 <= interval.high
    assert 180 <= held <= 199


def test_seed_without_pair_is_refused():
    with pytest.raises(ValueError, match="for every seed"):
        paired_difference(np.array([[1.0, 1.0], [np.nan, np.nan]]), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="of one shape"):
        paired_difference(np.zeros((2, 2)), np.zeros((2, 3)))
