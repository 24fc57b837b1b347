import numpy as np
import pytest

from starpo.ragen.studies.ablation.peak import cross_fitted_peak, peak


def test_peak_is_the_earliest_best_mean():
    rates = np.array([[[0.0, 1.0]], [[1.0, 1.0]], [[1.0, 1.0]], [[0.0, 0.0]]])  # means 0.5, 1, 1, 0
    assert peak(rates) == (1, 1.0)
    # the sums 0 + 2/3 + 1 + 1/3 and 0 + 1/3 + 2/3 + 1 differ by rounding alone
    assert peak(np.array([[[0, 2 / 3, 1, 1 / 3]], [[0, 1 / 3, 2 / 3, 1]]])) == (0, pytest.approx(0.5))


def test_cross_fitting_by_hand():
    # Prompts 0, 2 select checkpoint 1 (mean 1), where prompts 1, 3 measure 0.
    # Prompts 1, 3 select checkpoint 0 (mean 0.5), where prompts 0, 2 measure 0. The mean is 0; the peak itself is 0.5.
    rates = np.array([[[0.0, 1.0, 0.0, 0.0]], [[1.0, 0.0, 1.0, 0.0]]])
    assert peak(rates) == (1, 0.5)
    assert cross_fitted_peak(rates) == 0.0


def test_without_noise_both_agree():
    rates = np.broadcast_to(np.array([0.1, 0.6, 0.3])[:, None, None], (3, 2, 10))
    assert peak(rates) == (1, pytest.approx(0.6))
    assert cross_fitted_peak(rates) == pytest.approx(0.6)


def test_the_peak_of_pure_noise_is_too_high_and_the_cross_fitted_one_is_not():
    """Twenty checkpoints with a true success of 0.5 each, in 60 repetitions."""
    random = np.random.default_rng(0)
    noise = [(random.random((20, 3, 64)) < 0.5).astype(float) for _ in range(60)]
    assert np.mean([peak(rates)[1] for rates in noise]) > 0.55
    assert np.mean([cross_fitted_peak(rates) for rates in noise]) == pytest.approx(0.5, abs=0.01)


def test_one_prompt_has_no_halves():
    assert cross_fitted_peak(np.ones((3, 2, 1))) is None


def test_missing_prompts_are_left_out():
    rates = np.array([[[0.0, np.nan, 0.5, 1.0]], [[1.0, 1.0, np.nan, 1.0]]])
    assert peak(rates) == (1, 1.0)
    # Prompts 0, 2 select checkpoint 1, measured as 1. For prompts 1, 3 both are 1: checkpoint 0, measured as 0.25.
    assert cross_fitted_peak(rates) == pytest.approx(0.625)
