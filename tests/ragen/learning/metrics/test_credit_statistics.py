"""Statistics of turns: by hand, against the noise that they subtract, and under changes that must not matter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.metrics.credit_statistics import (
    Resamples,
    Statistic,
    attainable,
    error_share,
    largest_is_in,
    rank_correlation,
    rank_correlations_within,
    shares_of_square,
    sign_agreements,
    slope,
    statistic,
    true_correlation,
)

values = st.lists(st.integers(-5, 5), min_size=4, max_size=20)


def alone(number: int) -> Resamples:
    return Resamples(["g"] * number)


def test_rank_correlation_by_hand() -> None:
    """Ranks 1, 2.5, 2.5, 4 and 2, 1, 3, 4, each minus 2.5: products 0.75 + 0 + 0 + 2.25 = 3, squares 4.5 and 5."""
    x, t = np.array([0.0, 5.0, 5.0, 9.0]), np.array([0.2, 0.1, 0.3, 7.0])
    assert rank_correlation(x, t, alone(4))[0] == pytest.approx(3 / 22.5**0.5)


@given(values, st.randoms(use_true_random=False))
def test_weights_equal_repeated_turns(numbers: list[int], random) -> None:
    x = np.array(numbers, dtype=float)
    t = np.array([random.randint(-3, 3) for _ in numbers], dtype=float)
    resamples = Resamples([f"g{place % 3}" for place in range(len(x))], num=3)
    for number, rho in enumerate(rank_correlation(x, t, resamples)):
        times = np.concatenate(list(resamples.weights(np.arange(len(x)))))[number].astype(int)
        repeated = rank_correlation(np.repeat(x, times), np.repeat(t, times), alone(times.sum()))[0]
        assert rho == pytest.approx(repeated, nan_ok=True)


@given(values)
def test_monotone_change_keeps_rank_correlation(numbers: list[int]) -> None:
    x = np.array(numbers, dtype=float)
    t = np.arange(len(x), dtype=float)
    first, other = (rank_correlation(of, t, alone(len(x)))[0] for of in (x, np.exp(x / 3) - 7))
    assert first == pytest.approx(other)
    assert rank_correlation(-x, t, alone(len(x)))[0] == pytest.approx(-first)


def test_within_needs_three_varying_turns() -> None:
    """Two turns; three equal truths; 1, 2, 3 against 1, 3, 2 is 0.5; an estimate without order is 0; noise alone."""
    trajectory = np.repeat([0, 1, 2, 3, 4], [2, 3, 3, 3, 3])
    t = np.array([1.0, 2, 4, 4, 4, 1, 3, 2, 1, 2, 3, 1, 2, 3])
    x = np.array([1.0, 2, 1, 2, 3, 1, 2, 3, 7, 7, 7, 1, 2, 3])
    within = rank_correlations_within(x, t, trajectory, trajectory < 4)
    assert np.isfinite(within).tolist() == [False] * 5 + [True, False, False] * 2 + [False] * 3
    assert within[[5, 8]] == pytest.approx([0.5, 0.0])
    assert Resamples(trajectory.tolist(), num=1).means(within)[0] == pytest.approx(0.25)


def test_signs_by_hand() -> None:
    """Errors of 1: truths beyond 1.96 count. Right, wrong, none (a half), and one that does not count."""
    agree = sign_agreements(np.array([0.1, 3.0, 0.0, 1.0]), np.array([2.0, -9.0, 5.0, 1.9]), np.ones(4))
    assert agree[:3].tolist() == [1.0, 0.0, 0.5]
    assert np.isnan(agree[3])
    share = alone(4).share(agree)
    assert share is not None
    assert share.value == pytest.approx(0.5)
    assert 0 <= share.low < 0.5 < share.high <= 1


def test_error_share_by_hand() -> None:
    """Scale 8 / 2 = 4, errors 1, 1, 1: squares 27 and 9 + 25 + 1 = 35; each minus noise of 3 * 0.5."""
    x, t = np.array([1.0, 1.0, 0.0]), np.array([3.0, 5.0, 1.0])
    assert error_share(x, t, np.zeros(3), alone(3))[0] == pytest.approx(3 / 35)
    assert error_share(x, t, np.full(3, 0.5**0.5), alone(3))[0] == pytest.approx(1.5 / 33.5)


def test_wrong_direction_is_worth_nothing() -> None:
    t = np.array([1.0, -2.0, 3.0])
    assert error_share(-t, t, np.zeros(3), alone(3))[0] == 1.0
    assert error_share(7 * t, t, np.zeros(3), alone(3))[0] == pytest.approx(0.0)
    assert np.isnan(error_share(t, t, np.full(3, 9.0), alone(3))[0])


def test_noise_correction_is_unbiased() -> None:
    """The truth is A plus noise of known error: the corrected statistics are those for A itself."""
    random, num = np.random.default_rng(7), 400
    a = random.normal(size=num)
    x = a + random.normal(size=num)
    error = random.uniform(0.2, 1.5, size=num)
    exact, plain = alone(num), np.zeros(num)
    shares, correlations, slopes, biased = [], [], [], []
    for _ in range(400):
        t = a + error * random.normal(size=num)
        shares.append(error_share(x, t, error, exact)[0])
        correlations.append(true_correlation(x, t, error, exact)[0])
        slopes.append(slope(x, t, exact)[0])
        biased.append(error_share(x, t, plain, exact)[0])
    for noisy, true in (
        (shares, error_share(x, a, plain, exact)),
        (correlations, true_correlation(x, a, plain, exact)),
        (slopes, slope(x, a, exact)),
    ):
        assert np.mean(noisy) == pytest.approx(true[0], abs=4 * np.std(noisy) / 20 + 0.005)
    assert np.mean(biased) > error_share(x, a, plain, exact)[0] + 0.15


def test_attainable_is_reached_by_truth() -> None:
    random = np.random.default_rng(3)
    a = random.normal(size=20_000)
    halves = a + random.normal(size=(2, 20_000))
    whole, exact = halves.mean(axis=0), alone(20_000)
    r = true_correlation(*halves, np.zeros(20_000), exact)[0]
    reached = true_correlation(a, whole, np.zeros(20_000), exact)[0]
    limit = attainable(Statistic(r, None, 0.0))
    assert limit == Statistic(pytest.approx(reached, abs=0.01), None, 0.0)
    assert attainable(Statistic(-0.1, None, None)) is None
    assert attainable(None) is None


def test_largest_turn_by_hand() -> None:
    """Found; tied among two of which one counts; all turns count, which says nothing."""
    trajectory, is_in = np.repeat([0, 1, 2], 2), np.array([True, False, True, False, True, True])
    largest = largest_is_in(np.array([-3.0, 1, 2, 2, 1, 5]), is_in, trajectory)
    assert largest[[0, 2]].tolist() == [1.0, 0.5]
    assert np.isnan(largest[[1, 3, 4, 5]]).all()
    assert shares_of_square(np.array([-3.0, 1, 2, 2, 1, 5]), is_in, alone(6))[0] == pytest.approx(39 / 44)


def test_interval_covers_at_its_rate() -> None:
    """Means of 40 groups whose turns are alike: the interval over turns would be far too narrow."""
    random, covered = np.random.default_rng(11), 0
    for seed in range(300):
        groups = np.repeat(np.arange(40), 5)
        values_n = np.repeat(random.normal(size=40), 5) + 0.1 * random.normal(size=200)
        mean = statistic(Resamples(groups.tolist(), num=400, seed=seed).means(values_n))
        assert mean is not None
        covered += mean.low < 0 < mean.high
    assert 0.90 <= covered / 300 <= 0.98


def test_single_group_has_no_interval() -> None:
    assert statistic(alone(3).means(np.array([1.0, 2.0, np.nan]))) == Statistic(1.5, None, None)
    assert statistic(alone(1).means(np.array([np.nan]))) is None
