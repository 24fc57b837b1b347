"""Advantage estimators: hand-computed numbers, and properties that hold for any rewards, values and masks."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import ADVANTAGES
from starpo.ragen.learning.objectives.advantages import (
    batch_relative,
    group_relative,
    leave_one_out,
    raw_return,
)
from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, scale_advantages
from starpo.ragen.learning.objectives.gae import bi_level_gae
from tests.ragen.learning.objectives.estimator_inputs import inputs_of, random_inputs

ALL = sorted(ADVANTAGES)


def test_group_relative_by_hand():
    # group 0 returns 1 and 3: mean 2, std 1 (ddof 0); group 1 returns 10, 10, 40: mean 20, std sqrt(200)
    inputs = inputs_of([[0.0]] * 5, returns=[1, 3, 10, 10, 40], groups=[0, 0, 1, 1, 1])
    estimate = group_relative(inputs)
    assert estimate.advantages_BT[:, 0].tolist() == [-1, 1, -10, -10, 20]
    root = math.sqrt(200)
    by_group = scale_advantages(estimate, inputs, "group")
    assert by_group[:, 0].tolist() == pytest.approx([-1, 1, -10 / root, -10 / root, 20 / root])
    # over all five centred returns, whose mean is 0: sqrt((1 + 1 + 100 + 100 + 400) / 5) = sqrt(120.4)
    by_batch = scale_advantages(estimate, inputs, "batch")
    assert by_batch[:, 0].tolist() == pytest.approx([a / math.sqrt(120.4) for a in (-1, 1, -10, -10, 20)])


def test_maxrl_by_hand():
    # a success in four: mean 1/4, so (1 - 1/4) / (1/4) = 3 and -1; no success, and nothing but success: 0
    inputs = inputs_of([[0.0]] * 8, returns=[1, 0, 0, 0, 0, 0, 1, 1], groups=[0, 0, 0, 0, 1, 1, 2, 2])
    assert load(ADVANTAGES, "maxrl")(inputs).advantages_BT[:, 0].tolist() == pytest.approx([3, -1, -1, -1, 0, 0, 0, 0])


def test_gdpo_by_hand():
    # environment 1 0 0 0 0 0: in the first group of two 1 and -1 (std 1/2), elsewhere 0; format 0 -0.1 | 0 -0.1 | 0 0:
    # 1 and -1, 1 and -1, 0; the sums 2 -2 1 -1 0 0 have mean 0 and std sqrt(10 / 6)
    components = {"environment": [1, 0, 0, 0, 0, 0], "format": [0, -0.1, 0, -0.1, 0, 0]}
    component_returns = {name: torch.tensor(values, dtype=torch.float64) for name, values in components.items()}
    inputs = inputs_of([[0.0]] * 6, groups=[0, 0, 1, 1, 2, 2], component_returns=component_returns)
    expected = [value / math.sqrt(10 / 6) for value in (2, -2, 1, -1, 0, 0)]
    assert load(ADVANTAGES, "gdpo")(inputs).advantages_BT[:, 0].tolist() == pytest.approx(expected)
    weighted = dataclasses.replace(inputs, options={"weights": {"format": 0.0}})
    expected = [value / math.sqrt(2 / 6) for value in (1, -1, 0, 0, 0, 0)]
    assert load(ADVANTAGES, "gdpo")(weighted).advantages_BT[:, 0].tolist() == pytest.approx(expected)


def test_public_code_scales_by_hand():
    # returns 0 0 0 8: mean 2, squared deviations 4 + 4 + 4 + 36 = 48, so the std with ddof 1 is sqrt(48 / 3) = 4
    inputs = inputs_of([[0.0]] * 4, returns=[0, 0, 0, 8])
    estimate = group_relative(inputs)
    for scale in ("group", "batch"):
        public = scale_advantages(estimate, inputs, scale, ddof=1)
        assert public[:, 0].tolist() == pytest.approx([-0.5, -0.5, -0.5, 1.5])
        plain = [a / math.sqrt(12) for a in (-2, -2, -2, 6)]
        assert scale_advantages(estimate, inputs, scale)[:, 0].tolist() == pytest.approx(plain)
    # a group or a batch of one is not scaled, even with ddof 1
    alone = inputs_of([[0.0]], returns=[3.0])
    for scale in ("group", "batch"):
        assert scale_advantages(raw_return(alone), alone, scale, ddof=1).tolist() == [[3.0]]


def test_bi_level_gae_of_vagens_test():
    """Numbers of VAGEN's test: two turns of five tokens, rewards 1 at both ends, values 0.1 to 1.0, gamma_turn 0.95."""
    values = [[number / 10 for number in range(1, 11)]]
    rewards = [[0, 0, 0, 0, 1, 0, 0, 0, 0, 1]]
    inputs = inputs_of(rewards, values, turns=[[0] * 5 + [1] * 5], gamma_turn=0.95)
    expected = [1.85, 1.75, 1.65, 1.55, 1.45, 0.4, 0.3, 0.2, 0.1, 0]
    assert bi_level_gae(inputs).advantages_BT[0].tolist() == pytest.approx(expected)


@pytest.mark.ci
@given(random_inputs(), st.floats(-1000, 1000))
@pytest.mark.parametrize("estimator", [group_relative, batch_relative, leave_one_out])
@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_reward_shift_changes_nothing(estimator, scale, inputs, shift):
    shifted = dataclasses.replace(inputs, returns_B=inputs.returns_B + shift)
    one = scale_advantages(estimator(inputs), inputs, scale)
    other = scale_advantages(estimator(shifted), shifted, scale)
    spread_B = inputs.returns_B[:, None] - inputs.returns_B
    if float(spread_B.abs().max()) == 0 or float(spread_B[spread_B != 0].abs().min()) > 1e-3:  # away from the threshold
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_equal_returns_give_zero_advantage(scale):
    inputs = inputs_of([[0.0]] * 3, returns=[0.1, 0.1, 0.1])
    assert scale_advantages(group_relative(inputs), inputs, scale).abs().max() < 1e-15


@pytest.mark.ci
@pytest.mark.parametrize("name", ALL)
@given(inputs=random_inputs(), poison=st.sampled_from([math.nan, math.inf, -7.0]))
@settings(max_examples=30)
def test_masked_values_never_matter(name, inputs, poison):
    """Values outside the mask, NaN included, change no result, and advantages there are 0."""
    outside = ~inputs.mask_BT
    poisoned = dataclasses.replace(
        inputs,
        rewards_BT=inputs.rewards_BT.masked_fill(outside, poison),
        values_BT=inputs.values_BT.masked_fill(outside, poison),
        turn_BT=inputs.turn_BT.masked_fill(outside, 99),
        logprobs_BT=inputs.logprobs_BT.masked_fill(outside, poison),
        collision_BT=inputs.collision_BT.masked_fill(outside, poison),
        implicit_rewards_BT=inputs.implicit_rewards_BT.masked_fill(outside, poison),
        is_answer_BT=inputs.is_answer_BT ^ outside,
    )
    estimate, same = load(ADVANTAGES, name)(inputs), load(ADVANTAGES, name)(poisoned)
    assert torch.equal(estimate.advantages_BT, same.advantages_BT)
    assert not estimate.advantages_BT[outside].any()
    if estimate.value_targets_BT is not None:
        assert torch.equal(estimate.value_targets_BT, same.value_targets_BT)


@pytest.mark.parametrize("name", ALL)
def test_every_registered_estimator_takes_no_tokens(name):
    empty = inputs_of([[0.0], [0.0]], [[1.0], [1.0]], mask=[[False], [False]], returns=[1.0, 2.0])
    empty = dataclasses.replace(
        empty,
        state_BK=torch.zeros(2, 1, dtype=torch.int64),
        marks_BK=torch.ones(2, 1),
        is_answer_BT=torch.zeros(2, 1, dtype=torch.bool),
        greedy_returns_B=torch.tensor([1.0, 2.0], dtype=torch.float64),
        logprobs_BT=torch.zeros(2, 1, dtype=torch.float64),
        collision_BT=torch.ones(2, 1, dtype=torch.float64),
        implicit_rewards_BT=torch.ones(2, 1, dtype=torch.float64),
    )
    estimate = load(ADVANTAGES, name)(empty)
    assert isinstance(estimate, AdvantageEstimate)
    assert estimate.advantages_BT.tolist() == [[0], [0]]
