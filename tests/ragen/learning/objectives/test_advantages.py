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
    greedy_baseline,
    group_relative,
    leave_one_out,
    length_weighted,
    optimal_token_baseline,
    raw_return,
    reward_to_go,
)
from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, scale_advantages
from starpo.ragen.learning.objectives.gae import bi_level_gae, gae, turn_gae
from starpo.ragen.learning.objectives.masks import turn_ends
from tests.ragen.learning.objectives.estimator_inputs import inputs_of, random_inputs

ALL = sorted(ADVANTAGES)


def test_gae_by_hand():
    # rewards 0, 0, 1; values 0.5, 0.6, 0.7; gamma 0.9, lambda 0.5
    # A2 = 1 - 0.7 = 0.3;  A1 = 0 + 0.9*0.7 - 0.6 + 0.45*0.3 = 0.03 + 0.135 = 0.165
    # A0 = 0 + 0.9*0.6 - 0.5 + 0.45*0.165 = 0.04 + 0.07425 = 0.11425
    estimate = gae(inputs_of([[0, 0, 1]], [[0.5, 0.6, 0.7]], gamma=0.9, gae_lambda=0.5))
    assert estimate.advantages_BT[0].tolist() == pytest.approx([0.11425, 0.165, 0.3])
    assert estimate.value_targets_BT[0].tolist() == pytest.approx([0.61425, 0.765, 1.0])


def test_gae_skips_what_the_environment_said():
    # the middle token is outside the mask, so the result is that of the two others next to each other
    with_hole = gae(inputs_of([[0, 9, 1]], [[0.5, 9, 0.7]], mask=[[True, False, True]], gamma=0.9, gae_lambda=0.5))
    without = gae(inputs_of([[0, 1]], [[0.5, 0.7]], gamma=0.9, gae_lambda=0.5))
    assert with_hole.advantages_BT[0].tolist() == [without.advantages_BT[0, 0], 0, without.advantages_BT[0, 1]]


def test_bi_level_gae_by_hand():
    # two turns of two tokens; rewards 1 and 2 at their ends; values .1 .2 .3 .4
    # token: gamma .9 lambda .5; turn: gamma_turn .8 lambda_turn .25
    # end of turn 1: 2 - .4 = 1.6
    # first token of turn 1: .9*.4 - .3 + .45*1.6 = .06 + .72 = .78
    # end of turn 0: 1 + .8*.4 - .2 + .2*1.6 = 1.12 + .32 = 1.44   (next: the end of turn 1, not its first token)
    # first token of turn 0: .9*.2 - .1 + .45*1.44 = .08 + .648 = .728
    inputs = inputs_of(
        [[0, 1, 0, 2]],
        [[0.1, 0.2, 0.3, 0.4]],
        turns=[[0, 0, 1, 1]],
        gamma=0.9,
        gae_lambda=0.5,
        gamma_turn=0.8,
        lambda_turn=0.25,
    )
    assert bi_level_gae(inputs).advantages_BT[0].tolist() == pytest.approx([0.728, 1.44, 0.78, 1.6])


def test_bi_level_gae_of_an_all_zero_reward_row_finds_turn_ends_in_the_structure():
    """The reference implementation takes non-zero rewards as turn ends, and crashes if there are none."""
    zero = inputs_of([[0, 0, 0, 0]], [[0.1, 0.2, 0.3, 0.4]], turns=[[0, 0, 1, 1]], gamma=0.9, gamma_turn=0.8)
    # end of turn 1: -.4; before it .9*(.4 - .4) - .3; end of turn 0: .8*(.4 - .4) - .2; before it .9*(.2 - .2) - .1
    assert bi_level_gae(zero).advantages_BT[0].tolist() == pytest.approx([-0.1, -0.2, -0.3, -0.4])


@given(random_inputs())
def test_bi_level_gae_with_one_turn_equals_gae(inputs):
    one_turn = dataclasses.replace(inputs, turn_BT=torch.zeros_like(inputs.turn_BT))
    torch.testing.assert_close(bi_level_gae(one_turn).advantages_BT, gae(one_turn).advantages_BT)


@given(random_inputs())
def test_bi_level_gae_without_discounts_equals_gae(inputs):
    plain = dataclasses.replace(inputs, gamma=1.0, gae_lambda=1.0, gamma_turn=1.0, lambda_turn=1.0)
    # with all factors 1 both telescope to reward to go minus value, if rewards are on turn ends only
    is_end_BT = turn_ends(inputs.turn_BT, inputs.mask_BT)
    on_ends = dataclasses.replace(plain, rewards_BT=inputs.rewards_BT.where(is_end_BT, 0))
    torch.testing.assert_close(bi_level_gae(on_ends).advantages_BT, gae(on_ends).advantages_BT)


@given(random_inputs())
def test_gae_with_gamma_and_lambda_1_is_return_to_go_minus_value(inputs):
    inputs = dataclasses.replace(inputs, gamma=1.0, gae_lambda=1.0)
    to_go_BT = inputs.rewards_BT.flip(1).cumsum(1).flip(1)
    expected_BT = torch.where(inputs.mask_BT, to_go_BT - inputs.values_BT, 0)
    torch.testing.assert_close(gae(inputs).advantages_BT, expected_BT)


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


def test_scales_of_the_public_code_by_hand():
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


def test_bi_level_gae_of_vagens_own_test():
    """Numbers of VAGEN's test: two turns of five tokens, rewards 1 at both ends, values 0.1 to 1.0, gamma_turn 0.95."""
    values = [[number / 10 for number in range(1, 11)]]
    rewards = [[0, 0, 0, 0, 1, 0, 0, 0, 0, 1]]
    inputs = inputs_of(rewards, values, turns=[[0] * 5 + [1] * 5], gamma_turn=0.95)
    expected = [1.85, 1.75, 1.65, 1.55, 1.45, 0.4, 0.3, 0.2, 0.1, 0]
    assert bi_level_gae(inputs).advantages_BT[0].tolist() == pytest.approx(expected)


def test_group_relative_needs_no_second_setting():
    """GRPO alone gives group baselines, for any order of the groups' members."""
    inputs = inputs_of([[0.0]] * 4, returns=[1, 10, 3, 30], groups=[0, 1, 0, 1])
    assert group_relative(inputs).advantages_BT[:, 0].tolist() == [-1, -10, 1, 10]


def test_batch_relative_leave_one_out_and_raw_return_by_hand():
    inputs = inputs_of([[0.0, 0.0]] * 4, returns=[1, 2, 3, 6], groups=[0, 0, 0, 1], mask=[[True, False]] * 4)
    assert batch_relative(inputs).advantages_BT.tolist() == [[-2, 0], [-1, 0], [0, 0], [3, 0]]  # mean 3
    # leave one out: 1 - (2+3)/2, 2 - (1+3)/2, 3 - (1+2)/2; a group of one has advantage 0
    assert leave_one_out(inputs).advantages_BT[:, 0].tolist() == [-1.5, 0, 1.5, 0]
    assert raw_return(inputs).advantages_BT[:, 0].tolist() == [1, 2, 3, 6]


@given(random_inputs(), st.floats(-1000, 1000))
@pytest.mark.parametrize("estimator", [group_relative, batch_relative, leave_one_out])
@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_a_shift_of_all_rewards_changes_nothing(estimator, scale, inputs, shift):
    shifted = dataclasses.replace(inputs, returns_B=inputs.returns_B + shift)
    one = scale_advantages(estimator(inputs), inputs, scale)
    other = scale_advantages(estimator(shifted), shifted, scale)
    spread_B = inputs.returns_B[:, None] - inputs.returns_B
    if float(spread_B.abs().max()) == 0 or float(spread_B[spread_B != 0].abs().min()) > 1e-3:  # away from the threshold
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_equal_returns_give_no_advantage_and_no_division_by_zero(scale):
    inputs = inputs_of([[0.0]] * 3, returns=[0.1, 0.1, 0.1])
    assert scale_advantages(group_relative(inputs), inputs, scale).abs().max() < 1e-15


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


def test_length_weighted_by_hand():
    # lengths 10, 20, 10, returns 1, 0, 0: b = 10 / 40
    mask = [[t < length for t in range(20)] for length in (10, 20, 10)]
    estimate = length_weighted(inputs_of([[0.0] * 20] * 3, returns=[1, 0, 0], mask=mask))
    assert estimate.advantages_BT[:, 0].tolist() == [0.75, -0.25, -0.25]


def test_greedy_baseline_by_hand():
    inputs = inputs_of([[0.0], [0.0]], returns=[1.0, -2.0])
    inputs = dataclasses.replace(inputs, greedy_returns_B=torch.tensor([0.5, 1.0], dtype=torch.float64))
    assert greedy_baseline(inputs).advantages_BT[:, 0].tolist() == [0.5, -3]


def test_reward_to_go_by_hand():
    # 1 + 0.5 * (2 + 0.5 * 4) = 3; 2 + 0.5 * 4 = 4; the token outside the mask is skipped
    estimate = reward_to_go(inputs_of([[1, 9, 2, 4]], mask=[[True, False, True, True]], gamma=0.5))
    assert estimate.advantages_BT[0].tolist() == [3, 0, 4, 4]


def test_optimal_token_baseline_by_hand():
    # first member, probabilities 1/2 and collision 1/2: energy 1 - 1 + 1/2 = 1/2 per token, W = 1/2, 1
    # second member, probabilities 1/4 and collision 1: energy 3/2 per token, W = 3/2, 3
    # rewards to go (gamma 1): 1, 1 and 0, 0
    # B_0 = (1 * 1/2) / (1/2 + 3/2) = 1/4; B_1 = 1 / (1 + 3) = 1/4
    inputs = dataclasses.replace(
        inputs_of([[0, 1], [0, 0]]),
        logprobs_BT=torch.tensor([[0.5, 0.5], [0.25, 0.25]], dtype=torch.float64).log(),
        collision_BT=torch.tensor([[0.5, 0.5], [1.0, 1.0]], dtype=torch.float64),
    )
    torch.testing.assert_close(
        optimal_token_baseline(inputs).advantages_BT,
        torch.tensor([[0.75, 0.75], [-0.25, -0.25]], dtype=torch.float64),
    )


@pytest.mark.parametrize("estimator", [gae, bi_level_gae, turn_gae])
def test_critic_estimators_refuse_to_work_without_values(estimator):
    with pytest.raises(AssertionError, match="critic"):
        estimator(inputs_of([[1.0]]))
