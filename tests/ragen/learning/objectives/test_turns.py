"""Estimators over turns: hand-computed numbers, and the estimators that they reduce to."""

import dataclasses

import pytest
import torch
from hypothesis import given

from starpo.ragen.learning.objectives.advantages import group_relative
from starpo.ragen.learning.objectives.anchor_states import gigpo, hgpo
from starpo.ragen.learning.objectives.gae import turn_gae
from tests.ragen.learning.objectives.estimator_inputs import inputs_of, random_inputs


def with_options(inputs, **options):
    return dataclasses.replace(inputs, options=options)


def test_turn_gae_by_hand():
    # two turns of two tokens, rewards 1 and 2, values at first tokens .1 and .3, at last ones .2 and .4
    # gamma_turn .5, lambda_turn .5
    inputs = inputs_of([[0, 1, 0, 2]], [[0.1, 0.2, 0.3, 0.4]], turns=[[0, 0, 1, 1]], gamma_turn=0.5, lambda_turn=0.5)
    # first: A_1 = 2 - .3 = 1.7; A_0 = 1 + .5 * .3 - .1 + .25 * 1.7 = 1.05 + .425 = 1.475
    first = turn_gae(inputs)
    assert first.advantages_BT[0].tolist() == pytest.approx([1.475, 1.475, 1.7, 1.7])
    assert first.value_targets_BT[0].tolist() == pytest.approx([1.575, 0, 2.0, 0])
    assert first.value_mask_BT.tolist() == [[True, False, True, False]]
    # last: A_1 = 2 - .4 = 1.6; A_0 = 1 + .5 * .4 - .2 + .25 * 1.6 = 1.4
    last = turn_gae(with_options(inputs, value_at="last"))
    assert last.advantages_BT[0].tolist() == pytest.approx([1.4, 1.4, 1.6, 1.6])
    assert last.value_mask_BT.tolist() == [[False, True, False, True]]


def two_by_two(**settings):
    """Inputs of two members with two one-token turns: same first state, different second ones; rewards 0 1 and 0 0."""
    inputs = inputs_of([[0, 1], [0, 0]], turns=[[0, 1], [0, 1]], gamma_turn=0.5)
    return with_options(dataclasses.replace(inputs, state_BK=torch.tensor([[0, 1], [0, 2]])), **settings)


def test_gigpo_with_standard_deviations_by_hand():
    # std with ddof 1: of 1 and 0 sqrt(.5), of .5 and 0 sqrt(.125); both give +-.5 / sqrt(.5)
    advantages = gigpo(two_by_two(normaliser="std")).advantages_BT
    assert advantages[0].tolist() == pytest.approx([2 * 0.5**0.5, 0.5**0.5], abs=1e-5)
    # returns 3 0 0 of turns in one state: mean 1, std sqrt((4 + 1 + 1) / 2); episode and step alike
    three = dataclasses.replace(inputs_of([[3], [0], [0]]), state_BK=torch.zeros(3, 1, dtype=torch.int64))
    advantages = gigpo(with_options(three, normaliser="std")).advantages_BT
    assert float(advantages[0]) == pytest.approx(2 * 2 / 3**0.5, abs=1e-5)


def test_gigpo_counts_episodes_once_unless_asked():
    """Lengths 1 and 3, returns 1 and 0: the mean is .5 over episodes and .25 over turns, as in the public code."""
    inputs = inputs_of([[1, 0, 0], [0, 0, 0]], turns=[[0, 1, 2]] * 2, mask=[[True, False, False], [True, True, True]])
    inputs = dataclasses.replace(inputs, state_BK=torch.arange(6).reshape(2, 3))
    assert gigpo(inputs).baselines_B.tolist() == [0.5, 0.5]
    assert gigpo(with_options(inputs, over="turns")).baselines_B.tolist() == [0.25, 0.25]


def test_hgpo_by_hand():
    # states 0 1 2 for both, 9 1 2 for the third member; rewards at the end 3, 0, 0; turn 2, gamma 1:
    # depth 1: mean 1 -> 2, -1, -1; depth 2: the same three; depth 3: the first two alone, mean 1.5 -> 1.5, -1.5
    # weights 1, 2, 3 over 6: (2 + 2 * 2 + 3 * 1.5) / 6 = 1.75, (-1 - 2 - 4.5) / 6 = -1.25; third: (-1 - 2) / 3 = -1
    inputs = inputs_of([[0, 0, 3], [0, 0, 0], [0, 0, 0]], turns=[[0, 1, 2]] * 3)
    inputs = dataclasses.replace(inputs, state_BK=torch.tensor([[0, 1, 2], [0, 1, 2], [9, 1, 2]]))
    steps = hgpo(with_options(inputs, depth=3)).advantages_BT - group_relative(inputs).advantages_BT
    assert steps[:, 2].tolist() == pytest.approx([1.75, -1.25, -1.0])
    # alpha 2: weights 1, 4, 9 over 14, so (2 + 4 * 2 + 9 * 1.5) / 14; half of that by the step weight; baseline 1
    result = hgpo(with_options(inputs, depth=3, alpha=2.0, step_weight=0.5))
    assert float(result.advantages_BT[0, 2]) == pytest.approx(2 + 0.5 * 23.5 / 14)
    assert result.baselines_B.tolist() == [1, 1, 1]


@pytest.mark.ci
@given(random_inputs())
def test_hgpo_of_depth_1_is_gigpo(inputs):
    torch.testing.assert_close(hgpo(with_options(inputs, depth=1)).advantages_BT, gigpo(inputs).advantages_BT)


@given(random_inputs())
def test_gigpo_without_steps_is_grpo(inputs):
    advantages = gigpo(with_options(inputs, step_weight=0.0)).advantages_BT
    torch.testing.assert_close(advantages, group_relative(inputs).advantages_BT)
