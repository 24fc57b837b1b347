import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.learning.filter.strategies import keep_all, min_p, top_fraction, top_k, top_p_linear, top_p_softmax

DROPPED = -np.inf
STRATEGIES = [keep_all, top_fraction, top_k, top_p_linear, top_p_softmax, min_p]

# Scores too small for a float to scale exactly are left out: the filter drops them as zero variance anyway.
a_score = st.one_of(st.just(DROPPED), st.floats(1e-6, 100), st.integers(0, 3).map(float))
some_scores = st.lists(a_score, max_size=20).map(np.array).map(lambda scores: scores.astype(np.float64))
shares = st.floats(0.01, 1.0)


def _kept(strategy, scores, **settings) -> list[int]:
    settings.setdefault("keep_count", 3 if strategy is top_k else None)
    return np.flatnonzero(strategy(np.array(scores, dtype=np.float64), FilterConfig(**settings))).tolist()


@pytest.mark.parametrize(
    ("num_groups", "keep", "num_kept"),
    [
        (8, 0.25, 2),  # the paper's: 25% of 8
        (10, 0.25, 3),  # 2.5 rounds up
        (50, 0.29, 15),  # 14.5 rounds up, although 0.29 * 50 = 14.499999999999998
        (10, 0.24, 2),  # 2.4 rounds down
        (4, 0.01, 1),  # 0.04 rounds to 0: at least one
        (4, 1.0, 4),
    ],
)
def test_top_fraction_rounds_half_up(num_groups, keep, num_kept):
    assert len(_kept(top_fraction, range(num_groups), keep=keep)) == num_kept


def test_top_fraction_of_all_groups():
    # 50% of all 6 groups is 3; of the 4 eligible ones it would be 2.
    assert _kept(top_fraction, [DROPPED, 5, 1, DROPPED, 4, 3], keep=0.5) == [1, 4, 5]


def test_top_k_keeps_a_number():
    assert _kept(top_k, [1, 4, 2, 3], keep_count=2) == [1, 3]
    assert _kept(top_k, [1, DROPPED], keep_count=2) == [0]


def test_top_p_linear_accumulates_sum_share():
    # Sum 10, sorted 4 3 2 1, running sums 4 7 9 10. A share of 0.7 is 7: two groups, and 0.71 is 7.1: three.
    assert _kept(top_p_linear, [1, 2, 3, 4], keep=0.7) == [2, 3]
    assert _kept(top_p_linear, [1, 2, 3, 4], keep=0.71) == [1, 2, 3]


def test_top_p_linear_ignores_rounding():
    # Ten equal scores of 0.1, share 0.3: three hold it, however 0.1 + 0.1 + 0.1 and 0.3 * their sum are rounded.
    assert _kept(top_p_linear, [0.1] * 10, keep=0.3) == [0, 1, 2]
    assert _kept(top_p_linear, [0.1] * 10, keep=1.0) == list(range(10))


def test_top_p_linear_needs_scores():
    assert _kept(top_p_linear, [0, 2, 0], keep=1.0) == [1]
    assert _kept(top_p_linear, [0, 0], keep=1.0) == []


def test_top_p_softmax_accumulates_probability():
    # exp(0), exp(ln 2), exp(ln 5) = 1, 2, 5 of 8: running shares 0.625, 0.875, 1.
    scores = np.log([1, 2, 5])
    assert _kept(top_p_softmax, scores, keep=0.6) == [2]
    assert _kept(top_p_softmax, scores, keep=0.63) == [1, 2]
    assert _kept(top_p_softmax, scores, keep=0.9) == [0, 1, 2]


def test_top_p_softmax_does_not_overflow():
    assert _kept(top_p_softmax, [1e6, 1.0], keep=0.9) == [0]


def test_min_p_keeps_share_of_best():
    # 0.5 * 4 = 2: kept at the bound, not below it.
    assert _kept(min_p, [1.9, 2.0, 4.0, DROPPED], keep=0.5) == [1, 2]
    assert _kept(min_p, [0.0, DROPPED, 0.0], keep=0.5) == [0, 2]


@pytest.mark.parametrize("strategy", [top_fraction, top_k, top_p_linear, top_p_softmax])
def test_ties_go_to_the_earlier_group(strategy):
    # Two of four equal scores, by share or by number.
    assert _kept(strategy, [3, 3, 3, 3], keep=0.5, keep_count=2 if strategy is top_k else None) == [0, 1]


@pytest.mark.ci
@pytest.mark.parametrize("strategy", STRATEGIES)
@given(scores=some_scores, keep=shares, seed=st.integers(0, 1000))
def test_strategies_keep_best_in_any_order(strategy, scores, keep, seed):
    config = FilterConfig(keep=keep, keep_count=3 if strategy is top_k else None)
    kept = strategy(scores, config)
    assert kept.dtype == np.bool_
    assert kept.shape == scores.shape
    assert np.isfinite(scores[kept]).all()
    passed_over = scores[~kept & np.isfinite(scores)]
    if kept.any() and len(passed_over):
        assert scores[kept].min() >= passed_over.max()
    order = np.random.default_rng(seed).permutation(len(scores))
    np.testing.assert_array_equal(np.sort(scores[order][strategy(scores[order], config)]), np.sort(scores[kept]))


@pytest.mark.parametrize("strategy", [top_fraction, top_p_linear, top_p_softmax])
@given(scores=some_scores, one=shares, other=shares)
def test_larger_share_keeps_superset(strategy, scores, one, other):
    smaller, larger = sorted([one, other])
    kept_by_smaller = strategy(scores, FilterConfig(keep=smaller))
    kept_by_larger = strategy(scores, FilterConfig(keep=larger))
    assert not (kept_by_smaller & ~kept_by_larger).any()


@given(scores=some_scores, one=shares, other=shares)
def test_min_p_monotone_in_threshold(scores, one, other):
    smaller, larger = sorted([one, other])
    assert not (min_p(scores, FilterConfig(keep=larger)) & ~min_p(scores, FilterConfig(keep=smaller))).any()


@pytest.mark.ci
@pytest.mark.parametrize("strategy", [keep_all, top_fraction, top_k, top_p_linear, min_p])
@given(scores=some_scores, keep=shares, scale=st.sampled_from([2.0**-20, 0.5, 2.0**20]))
def test_reward_scale_does_not_matter(strategy, scores, keep, scale):
    config = FilterConfig(keep=keep, keep_count=3 if strategy is top_k else None)
    np.testing.assert_array_equal(strategy(scores * scale, config), strategy(scores, config))


@given(scores=some_scores, keep=shares)
def test_at_least_one_group_kept(scores, keep):
    may_keep = np.isfinite(scores)
    for strategy in (top_fraction, top_p_softmax, min_p):
        assert strategy(scores, FilterConfig(keep=keep)).any() == may_keep.any()
    assert top_p_linear(scores, FilterConfig(keep=keep)).any() == (scores > 0).any()


@pytest.mark.parametrize("metric", ["mean", "sum"])
@pytest.mark.parametrize("strategy", ["top_p_linear", "min_p"])
def test_shares_of_negative_scores_refused(strategy, metric):
    with pytest.raises(ValueError, match=f"the {metric} of returns can be negative"):
        FilterConfig(strategy=strategy, metric=metric)
