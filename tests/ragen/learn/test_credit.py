"""From rewards to advantages: placement, KL penalties, groups, whitening."""

import dataclasses

import pytest
import torch

from ragen.config.update import UpdateConfig
from ragen.learn.credit import assign_credit
from ragen.learn.tokens import ResponseTokens

GRPO = UpdateConfig(advantage="grpo")


def test_every_token_of_a_trajectory_shares_its_group_relative_return(make_trajectories):
    trajectories = make_trajectories(8)
    tokens = ResponseTokens(trajectories)
    credit = assign_credit(trajectories, tokens, GRPO, torch.zeros(len(tokens)), None, None)
    assert credit.value_targets_N is None
    for index, trajectory in enumerate(trajectories):
        group = [t.normalised_return for t in trajectories if t.group_id == trajectory.group_id]
        own = credit.advantages_N[tokens.trajectory_N == index]
        assert own.tolist() == pytest.approx([trajectory.normalised_return - sum(group) / 4] * len(own), abs=1e-6)


def test_a_trajectory_without_tokens_still_counts_in_its_groups_baseline(make_trajectories):
    trajectories = make_trajectories(4)
    silent = [dataclasses.replace(trajectories[0], segments=()), *trajectories[1:]]
    tokens = ResponseTokens(silent)
    credit = assign_credit(silent, tokens, GRPO, torch.zeros(len(tokens)), None, None)
    mean = sum(t.trajectory_return for t in trajectories) / 4
    assert float(credit.advantages_N[0]) == pytest.approx(trajectories[1].trajectory_return - mean, abs=1e-6)


def test_kl_in_the_reward_is_paid_token_by_token(make_trajectories):
    trajectories = make_trajectories(1)
    tokens = ResponseTokens(trajectories)
    old_N, ref_N = torch.full((len(tokens),), -1.0), torch.full((len(tokens),), -3.0)
    config = UpdateConfig(advantage="gae", kl_coefficient=0.25, kl_placement="reward", kl_estimator="k1")
    credit = assign_credit(trajectories, tokens, config, old_N, ref_N, torch.zeros(len(tokens)))
    # k1 = 2 a token, so each costs 0.5; gamma = lambda = 1 and values 0: the advantage is what is still to come
    to_go_N = tokens.rewards(trajectories).flip(0).cumsum(0).flip(0)
    paid_N = 0.5 * torch.arange(len(tokens), 0, -1)
    torch.testing.assert_close(credit.advantages_N, (to_go_N - paid_N).float())
    raw = assign_credit(trajectories, tokens, config.model_copy(update={"advantage": "reinforce"}), old_N, ref_N, None)
    assert float(raw.advantages_N[0]) == pytest.approx(trajectories[0].trajectory_return - 0.5 * len(tokens), abs=1e-5)


def test_kl_in_the_loss_leaves_rewards_alone(make_trajectories):
    trajectories = make_trajectories(4)
    tokens = ResponseTokens(trajectories)
    zeros_N = torch.zeros(len(tokens))
    config = GRPO.model_copy(update={"kl_coefficient": 0.25, "kl_placement": "loss"})
    plain = assign_credit(trajectories, tokens, GRPO, zeros_N, None, None)
    with_kl = assign_credit(trajectories, tokens, config, zeros_N, zeros_N - 5, None)
    assert torch.equal(plain.advantages_N, with_kl.advantages_N)


def test_whitened_advantages_have_mean_0_and_std_1_over_all_tokens(make_trajectories):
    trajectories = make_trajectories(8)
    tokens = ResponseTokens(trajectories)
    config = UpdateConfig(advantage="gae", should_whiten=True)
    values_N = torch.linspace(-1, 1, len(tokens))
    credit = assign_credit(trajectories, tokens, config, values_N, None, values_N)
    assert float(credit.advantages_N.mean()) == pytest.approx(0, abs=1e-6)
    assert float(credit.advantages_N.std(correction=0)) == pytest.approx(1, abs=1e-6)
    # targets are what was seen, not the whitened advantage plus the value
    plain = assign_credit(trajectories, tokens, UpdateConfig(advantage="gae"), values_N, None, values_N)
    torch.testing.assert_close(credit.value_targets_N, plain.advantages_N + values_N)


@pytest.mark.parametrize("name", ["gae", "bi_level_gae", "grpo", "grpo_batch", "rloo", "reinforce"])
@pytest.mark.parametrize("context_mode", ["window", "full"])
def test_cutting_a_trajectory_into_segments_changes_no_advantage(make_trajectories, name, context_mode):
    """Credit flows over the whole trajectory in time order, however its context was cut."""
    trajectories = make_trajectories(4, context=context_mode, num_turns=3)
    tokens = ResponseTokens(trajectories)
    values_N = torch.linspace(0, 1, len(tokens))
    config = UpdateConfig(advantage=name, gamma=0.9, gae_lambda=0.8, gamma_turn=0.95, lambda_turn=0.7)
    credit = assign_credit(trajectories, tokens, config, values_N, None, values_N if config.needs_critic else None)
    if config.needs_critic:
        last_N = torch.diff(tokens.trajectory_N, append=torch.tensor([4])) > 0
        final = torch.tensor([t.turn_rewards[-1] for t in trajectories]).float()
        torch.testing.assert_close(credit.advantages_N[last_N], final - values_N[last_N])
    assert torch.isfinite(credit.advantages_N).all()
