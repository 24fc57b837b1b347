"""Importance weight of a response that search chose."""

import numpy as np
import pytest

from starpo.ragen.learning.objectives.chosen import selection_weight


def test_hand_computed() -> None:
    # 1 of 4: 0.25 / (1 - 0.75^4) = 0.25 / 0.68359375; 2 of 4: 0.5 / (1 - 0.5^4); 3 of 4: 0.75 / (1 - 0.25^4)
    weights = selection_weight(np.array([1, 2, 3, 4, 1]), np.array([4, 4, 4, 4, 1]))
    assert weights.tolist() == pytest.approx([0.365714, 0.533333, 0.752941, 1.0, 1.0], abs=1e-6)
    assert weights.dtype == np.float64


def test_best_class_weighted_by_policy_draws() -> None:
    """The policy's mass of the best class is 0.25, so the estimate of 1 in 4 is exact."""
    is_best = (np.random.default_rng(0).random((200_000, 4)) < 0.25).any(axis=1)
    (weight,) = selection_weight(np.array([1]), np.array([4]))
    assert weight * is_best.mean() == pytest.approx(0.25, abs=2e-3)
