"""Turn rewards from a process reward model (iStar): hand-computed numbers, and the model's loss."""

import dataclasses
import math

import pytest
import torch

from starpo.ragen.methods.implicit_rewards.estimator import istar
from starpo.ragen.methods.implicit_rewards.preferences import preference_loss, preferences
from tests.ragen.learning.objectives.estimator_inputs import inputs_of


def two_members(implicit, **options):
    """Inputs of two members with two turns of one token each; returns 1 and 0."""
    inputs = inputs_of([[0, 1], [0, 0]], turns=[[0, 1], [0, 1]])
    return dataclasses.replace(inputs, implicit_rewards_BT=torch.tensor(implicit, dtype=torch.float64), options=options)


def test_istar_by_hand():
    # returns 1 and 0: mean .5, std .5, so +-1. Steps 3 1 -1 -3: mean 0, std sqrt(5), so 3 / sqrt(5), ...
    estimate = istar(two_members([[3, 1], [-1, -3]]))
    step = 5**-0.5
    assert estimate.advantages_BT[0].tolist() == pytest.approx([1 + 3 * step, 1 + step])
    assert estimate.advantages_BT[1].tolist() == pytest.approx([-1 - step, -1 - 3 * step])
    assert estimate.baselines_B.tolist() == [0, 1]


def test_step_weight_scales_normalised_step_advantage():
    one = istar(two_members([[3, 1], [-1, -3]], step_weight=0.5)).advantages_BT
    assert one[0, 0].item() == pytest.approx(1 + 1.5 * 5**-0.5)
    scaled = istar(two_members([[30, 10], [-10, -30]], step_weight=0.5)).advantages_BT  # a tenfold beta: the same
    assert scaled.flatten().tolist() == pytest.approx(one.flatten().tolist())


def test_preferences_pair_members_with_unequal_returns():
    returns, groups = torch.tensor([1.0, 0.0, 0.0, 5.0, 2.0]), torch.tensor([0, 0, 0, 1, 1])
    everybody = torch.ones(5, dtype=torch.bool)
    assert preferences(returns, groups, everybody).tolist() == [[0, 1], [0, 2], [3, 4]]
    silent = torch.tensor([True, True, False, True, False])
    assert preferences(returns, groups, silent).tolist() == [[0, 1]]
    assert len(preferences(torch.zeros(5), groups, everybody)) == 0


def test_preference_loss_is_bradley_terry():
    pairs = torch.tensor([[0, 1], [2, 1]])
    assert preference_loss(torch.zeros(3), pairs).item() == pytest.approx(math.log(2))
    rewards = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)
    expected = [-math.log(1 / (1 + math.exp(-margin))) for margin in (2.0, 1.0)]
    assert preference_loss(rewards, pairs).item() == pytest.approx(sum(expected) / 2)
