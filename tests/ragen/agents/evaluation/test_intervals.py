import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.agents.evaluation.intervals import (
    mean_interval,
    pass_at_k,
    success_interval,
    wilson_interval,
)


def test_wilson_by_hand():
    # p = 1/2, n = 4, z = 1.95996, z^2 = 3.84146. Centre is 1/2 by symmetry.
    # half = z / (1 + z^2/4) * sqrt(0.25/4 + z^2/64) = 1.95996 / 1.960365 * sqrt(0.0625 + 0.0600228) = 0.349964
    low, high = wilson_interval(2, 4)
    assert (low, high) == pytest.approx((0.150036, 0.849964), abs=1e-5)


def test_wilson_of_no_success_in_ten():
    # p = 0: both terms are z^2/2n / (1 + z^2/n), so high = z^2/n / (1 + z^2/n) = 0.384146 / 1.384146 = 0.277533.
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.277533), abs=1e-6)
    assert wilson_interval(10, 10) == pytest.approx((1 - 0.277533, 1.0), abs=1e-6)


def test_no_trials_give_widest_interval():
    assert wilson_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("successes", "trials"), [(2, 1), (-1, 1)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ValueError, match="expected 0 <= successes <= trials"):
        wilson_interval(successes, trials)
    with pytest.raises(ValueError, match="expected for every prompt 0 <= successes <= trials"):
        success_interval([successes], [trials])


@pytest.mark.ci
@given(st.integers(1, 5000), st.data())
def test_wilson_holds_the_share_and_mirrors(trials, data):
    successes = data.draw(st.integers(0, trials))
    low, high = wilson_interval(successes, trials)
    assert 0.0 <= low <= successes / trials <= high <= 1.0
    assert low < high
    mirrored = wilson_interval(trials - successes, trials)
    assert (low, high) == pytest.approx((1 - mirrored[1], 1 - mirrored[0]), abs=1e-12)


def test_several_episodes_by_hand():
    # rates 1, 1/2, 0, 1/2: p = 1/2, error sqrt(4/3 * 2 * (2 * 1/2)^2) / 8 = 0.204124: worth 0.25 / 0.041667 = 6;
    # Student's quantile of 3 degrees instead of the normal one: 6 (1.95996 / 3.1824)^2 = 2.2758
    half = 1.95996 / (1 + 3.84146 / 2.2758) * (0.25 / 2.2758 + 3.84146 / 4 / 2.2758**2) ** 0.5
    assert success_interval([2, 1, 0, 1], [2] * 4) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-3)


def test_copies_count_once():
    """64 prompts with 8 episodes each, all with the same outcome per prompt, count as 64 trials, not as 512."""
    low, high = success_interval([8] * 32 + [0] * 32, [8] * 64)
    assert (low, high) == pytest.approx(wilson_interval(32, 64), abs=0.01)
    naive_low, naive_high = wilson_interval(256, 512)
    assert high - low > 2.5 * (naive_high - naive_low)


def test_no_spread_claims_no_certainty():
    assert success_interval([4] * 10, [4] * 10) == wilson_interval(10, 10)
    assert success_interval([0] * 10, [4] * 10) == wilson_interval(0, 10)
    assert success_interval([2] * 10, [4] * 10) == wilson_interval(5, 10)


@given(st.integers(1, 7), st.data())
def test_pass_at_k_counts_successful_subsets(trials, data):
    successes, k = data.draw(st.integers(0, trials)), data.draw(st.integers(1, trials))
    outcomes = [1] * successes + [0] * (trials - successes)
    subsets = [any(subset) for subset in itertools.combinations(outcomes, k)]
    assert pass_at_k([trials], [successes], k) == pytest.approx(np.mean(subsets))


def test_pass_at_k_never_overflows():
    assert pass_at_k([1000], [1], 512) == pytest.approx(0.512)  # one success among 1000: k/n


@pytest.mark.parametrize(("trials", "k"), [([], 1), ([4, 1], 2), ([4], 0)])
def test_pass_at_k_needs_k_episodes(trials, k):
    with pytest.raises(ValueError, match="needs at least one prompt"):
        pass_at_k(trials, [0] * len(trials), k)


def test_interval_of_a_mean_by_hand() -> None:
    """p = 0.5 +- 0.3 and 0.7 +- 0.4: mean 0.6 +- sqrt(0.09 + 0.16) / 2 = 0.25."""
    assert mean_interval([0.5, 0.7], [(0.2, 0.8), (0.3, 1.1)]) == pytest.approx((0.35, 0.85))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(20, 40)), min_size=1, max_size=6))
def test_mean_interval_within_widest(counts: list[tuple[int, int]]) -> None:
    shares = [successes / trials for successes, trials in counts]
    intervals = [wilson_interval(*count) for count in counts]
    low, high = mean_interval(shares, intervals)
    mean = sum(shares) / len(shares)
    assert 0 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1
    assert high - low <= max(upper - lower for lower, upper in intervals) + 1e-12


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8)), min_size=1, max_size=30))
def test_success_interval_holds_the_share(counts: list[tuple[int, int]]) -> None:
    successes, trials = zip(*((min(pair), pair[1]) for pair in counts), strict=True)
    low, high = success_interval(successes, trials)
    share = sum(successes) / sum(trials)
    assert 0.0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1.0
    assert low < high


def test_single_episodes_have_wilsons_interval() -> None:
    assert success_interval([1, 0, 1], [1, 1, 1]) == wilson_interval(2, 3)
    assert success_interval([], []) == (0.0, 1.0)
