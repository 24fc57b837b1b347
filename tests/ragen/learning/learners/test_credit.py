"""From rewards to advantages: placement, KL penalties, groups, whitening."""

import dataclasses

import numpy as np
import pytest
import torch

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.registry import ADVANTAGES
from starpo.ragen.learning.learners.credit import Credit, assign_credit
from starpo.ragen.learning.learners.data.paid import PaidTrajectory
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Segment
from starpo.ragen.learning.learners.models.scoring import Scores
from starpo.ragen.learning.objectives.estimates import AdvantageEstimate

GRPO = UpdateConfig(advantage="grpo")


def credit_of(trajectories, tokens, config, old_N, ref_N, values_N) -> Credit:
    columns = {
        name: column_N for name, column_N in (("reference", ref_N), ("critic", values_N)) if column_N is not None
    }
    return assign_credit(trajectories, tokens, config, Scores(old_N, -old_N), columns)


def by_turn(segment: Segment) -> tuple[Segment, ...]:
    """Cut a segment after each response."""
    ends = np.flatnonzero(np.diff(segment.response_mask.astype(int)) < 0) + 1
    columns = (np.split(column, ends) for column in vars(segment).values())
    return tuple(Segment(*cut) for cut in zip(*columns, strict=True))


def test_grpo_tokens_share_relative_return(make_trajectories):
    trajectories = make_trajectories(8)
    tokens = ResponseTokens(trajectories)
    credit = credit_of(trajectories, tokens, GRPO, torch.zeros(len(tokens)), None, None)
    assert credit.value_targets_N is None
    for index, trajectory in enumerate(trajectories):
        group = [t.normalised_return for t in trajectories if t.group_id == trajectory.group_id]
        advantages = credit.advantages_N[tokens.trajectory_N == index]
        assert advantages.tolist() == pytest.approx(
            [trajectory.normalised_return - sum(group) / 4] * len(advantages), abs=1e-6
        )


def test_empty_trajectory_counts_in_group_baseline(make_trajectories):
    trajectories = make_trajectories(4)
    silent = [dataclasses.replace(trajectories[0], segments=()), *trajectories[1:]]
    tokens = ResponseTokens(silent)
    credit = credit_of(silent, tokens, GRPO, torch.zeros(len(tokens)), None, None)
    mean = sum(t.trajectory_return for t in trajectories) / 4
    assert float(credit.advantages_N[0]) == pytest.approx(trajectories[1].trajectory_return - mean, abs=1e-6)


def test_trajectory_end_places_return_last(make_trajectories):
    """The public code's placement: one reward, on the last token; with gamma = lambda = 1 every token gets R - V."""
    trajectories = [dataclasses.replace(t, normalised_return=t.trajectory_return + 0.5) for t in make_trajectories(3)]
    tokens = ResponseTokens(trajectories)
    rewards_BT = tokens.rectangle(tokens.rewards(trajectories, "trajectory_end"))
    returns_B = torch.tensor([t.normalised_return for t in trajectories], dtype=torch.float64)
    assert torch.equal(rewards_BT.gather(1, tokens.lengths_B[:, None] - 1)[:, 0], returns_B)
    assert (rewards_BT != 0).sum() == 3
    values_N = torch.linspace(-1, 1, len(tokens))
    config = UpdateConfig(advantage="gae", reward_placement="trajectory_end")
    credit = credit_of(trajectories, tokens, config, values_N, None, values_N)
    torch.testing.assert_close(credit.advantages_N, returns_B[tokens.trajectory_N].float() - values_N)
    by_turn = credit_of(trajectories, tokens, config.model_copy(update={"reward_placement": "turn_end"}),
                            values_N, None, values_N)  # fmt: skip
    is_last_turn_N = tokens.turn_N == 1
    first, last = (credit.advantages_N - by_turn.advantages_N)[~is_last_turn_N], credit.advantages_N[is_last_turn_N]
    assert first.abs().max() < 1e-6  # all rewards are still ahead of the first turn's tokens
    earned_N = torch.tensor([t.turn_rewards[0] for t in trajectories])[tokens.trajectory_N][is_last_turn_N].float()
    torch.testing.assert_close(last - by_turn.advantages_N[is_last_turn_N], earned_N)


def test_critic_free_estimators_ignore_reward_placement(make_trajectories):
    trajectories = make_trajectories(8)
    tokens = ResponseTokens(trajectories)
    zeros_N = torch.zeros(len(tokens))
    for name in ("grpo", "grpo_batch", "rloo", "reinforce"):
        by_turn = UpdateConfig(advantage=name)
        at_end = UpdateConfig(advantage=name, reward_placement="trajectory_end")
        one, other = (credit_of(trajectories, tokens, c, zeros_N, None, None) for c in (by_turn, at_end))
        assert torch.equal(one.advantages_N, other.advantages_N)


def test_deviations_may_be_the_public_codes(make_trajectories):
    """With `std_ddof = 1`, standard deviations divide by n - 1: within a group of four, and over all tokens."""
    trajectories = make_trajectories(8)
    tokens = ResponseTokens(trajectories)
    zeros_N = torch.zeros(len(tokens))
    group = UpdateConfig(advantage="grpo", advantage_scale="group", std_ddof=1)
    credit = credit_of(trajectories, tokens, group, zeros_N, None, None)
    returns = torch.tensor([t.normalised_return for t in trajectories[4:]], dtype=torch.float64)
    expected = (returns - returns.mean()) / returns.std(correction=1)
    for index in range(4, 8):
        advantages = credit.advantages_N[tokens.trajectory_N == index]
        torch.testing.assert_close(advantages, expected[index - 4].float().expand_as(advantages))
    white = UpdateConfig(advantage="gae", should_whiten=True, std_ddof=1)
    credit = credit_of(trajectories, tokens, white, zeros_N, None, zeros_N)
    assert float(credit.advantages_N.double().std(correction=1)) == pytest.approx(1, abs=1e-6)


def test_explained_variance_is_over_value_mask():
    """Targets 0 and 1: variance 1/4; residuals -1/2 and 0: variance 1/16. Nothing is explained if targets are equal."""
    zeros_N, mask_N = torch.zeros(3), torch.tensor([True, True, False])
    credit = Credit(zeros_N, torch.tensor([0.0, 1.0, 9.0]), mask_N)
    assert credit.explained_variance(torch.tensor([0.5, 1.0, 0.0])) == {"update/explained_variance": 0.75}
    assert Credit(zeros_N, None, None).explained_variance(zeros_N) == {}
    assert Credit(zeros_N, zeros_N, mask_N).explained_variance(zeros_N) == {}
    assert Credit(zeros_N, torch.tensor([1.0, 1.0 + 1e-7, 9.0]), mask_N).explained_variance(zeros_N) == {}  # rounding
    assert Credit(zeros_N, zeros_N, ~mask_N).explained_variance(zeros_N + 1) == {}


def test_reward_kl_is_paid_per_token(make_trajectories):
    trajectories = make_trajectories(1)
    tokens = ResponseTokens(trajectories)
    old_N, ref_N = torch.full((len(tokens),), -1.0), torch.full((len(tokens),), -3.0)
    config = UpdateConfig(advantage="gae", kl_coefficient=0.25, kl_placement="reward", kl_estimator="k1")
    credit = credit_of(trajectories, tokens, config, old_N, ref_N, torch.zeros(len(tokens)))
    # k1 = 2 per token, so each costs 0.5; with gamma = lambda = 1 and values 0 the advantage is the reward to go
    to_go_N = tokens.rewards(trajectories).flip(0).cumsum(0).flip(0)
    paid_N = 0.5 * torch.arange(len(tokens), 0, -1)
    torch.testing.assert_close(credit.advantages_N, (to_go_N - paid_N).float())
    raw = credit_of(trajectories, tokens, config.model_copy(update={"advantage": "reinforce"}), old_N, ref_N, None)
    assert float(raw.advantages_N[0]) == pytest.approx(trajectories[0].trajectory_return - 0.5 * len(tokens), abs=1e-5)


def marked(inputs):
    return AdvantageEstimate(inputs.on_tokens(inputs.marks_BK), None, torch.zeros_like(inputs.returns_B))


marked.marks = lambda trajectory: [2.0 if text else 0.5 for text in trajectory.reasoning]


def test_custom_estimator_reads_turn_marks(make_trajectories, monkeypatch):
    config = UpdateConfig(advantage=f"{__name__}:marked")
    trajectories = [*make_trajectories(4), *make_trajectories(5, num_turns=3)[4:]]
    tokens = ResponseTokens(trajectories)
    credit = credit_of(trajectories, tokens, config, torch.zeros(len(tokens)), None, None)
    assert credit.advantages_N.tolist() == [0.5 if turn % 2 else 2.0 for turn in tokens.turn_N.tolist()]
    monkeypatch.setattr(marked, "marks", lambda trajectory: [1.0])
    with pytest.raises(
        LearnerError, match=r"marks of estimator .* have shape \[1\] for the 2 turns of trajectory 't0'"
    ):
        credit_of(trajectories, tokens, config, torch.zeros(len(tokens)), None, None)


@pytest.mark.parametrize("greedy", [[0.0, 0.0, None, None], [None] * 4])
def test_failed_greedy_rollout_gives_no_advantage(make_trajectories, greedy):
    trajectories = [
        dataclasses.replace(t, group_id=f"g{index // 2}", greedy_return=greedy[index])
        for index, t in enumerate(make_trajectories(4))
    ]
    tokens = ResponseTokens(trajectories)
    zeros_N = torch.zeros(len(tokens))
    paid = UpdateConfig(advantage="remax", kl_coefficient=1.0, kl_placement="reward", kl_estimator="k1")
    for config, ref_N in ((UpdateConfig(advantage="remax"), None), (paid, zeros_N - 2)):
        credit = credit_of(trajectories, tokens, config, zeros_N, ref_N, None)
        is_failed_N = torch.tensor([value is None for value in greedy])[tokens.trajectory_N]
        assert bool((credit.advantages_N[is_failed_N] == 0).all())
        assert is_failed_N.all() or bool((credit.advantages_N[~is_failed_N] != 0).all())


def test_loss_kl_does_not_change_rewards(make_trajectories):
    trajectories = make_trajectories(4)
    tokens = ResponseTokens(trajectories)
    zeros_N = torch.zeros(len(tokens))
    config = GRPO.model_copy(update={"kl_coefficient": 0.25, "kl_placement": "loss"})
    plain = credit_of(trajectories, tokens, GRPO, zeros_N, None, None)
    with_kl = credit_of(trajectories, tokens, config, zeros_N, zeros_N - 5, None)
    assert torch.equal(plain.advantages_N, with_kl.advantages_N)


def test_whitened_advantages_are_standardised(make_trajectories):
    trajectories = make_trajectories(8)
    tokens = ResponseTokens(trajectories)
    config = UpdateConfig(advantage="gae", should_whiten=True)
    values_N = torch.linspace(-1, 1, len(tokens))
    credit = credit_of(trajectories, tokens, config, values_N, None, values_N)
    assert float(credit.advantages_N.mean()) == pytest.approx(0, abs=1e-6)
    assert float(credit.advantages_N.std(correction=0)) == pytest.approx(1, abs=1e-6)
    # targets are the plain advantage plus the value, not the whitened one
    plain = credit_of(trajectories, tokens, UpdateConfig(advantage="gae"), values_N, None, values_N)
    torch.testing.assert_close(credit.value_targets_N, plain.advantages_N + values_N)


def test_masked_rewards_move_to_earlier_tokens(make_trajectories):
    """Compared with a loop over tokens; with gamma = lambda = 1 and values 0, advantages are rewards to go."""
    trajectories = make_trajectories(6, num_turns=3)
    tokens = ResponseTokens(trajectories)
    config = UpdateConfig(advantage="gae", advantage_on="answer")
    credit = credit_of(trajectories, tokens, config, torch.zeros(len(tokens)), None, torch.zeros(len(tokens)))
    takes_part, rewards = (tokens.kind_N == 3).tolist(), tokens.rewards(trajectories).tolist()
    for index, trajectory in enumerate(trajectories):
        positions = torch.nonzero(tokens.trajectory_N == index)[:, 0].tolist()
        for token in positions:
            is_first = not any(takes_part[t] for t in positions if t < token)
            before = 0.0 if is_first else sum(rewards[t] for t in positions if t < token)
            expected = trajectory.trajectory_return - before if takes_part[token] else 0.0
            assert float(credit.advantages_N[token]) == pytest.approx(expected, abs=1e-5)
    assert torch.equal(credit.value_mask_N, torch.tensor(takes_part))


def test_shapings_are_applied_in_their_order(make_trajectories):
    trajectories = make_trajectories(8)
    trajectories[5] = dataclasses.replace(trajectories[5], segments=())  # a length of 0 counts in no mean
    tokens = ResponseTokens(trajectories)
    zeros_N = torch.zeros(len(tokens))
    plain = credit_of(trajectories, tokens, GRPO, zeros_N, None, None).advantages_N

    def shaped(*names):
        config = UpdateConfig(advantage="grpo", shaping=list(names), entropy_coefficient=0.01)
        scores = Scores(zeros_N, zeros_N)
        return assign_credit(trajectories, tokens, config, scores, {}, kept_share=0.25).advantages_N

    assert not shaped("zero").any()
    torch.testing.assert_close(shaped("by_kept_share"), plain / 4)
    torch.testing.assert_close(shaped("by_root_kept_share"), plain / 2)
    torch.testing.assert_close(shaped("by_kept_share", "asymmetric_clip"), (plain / 4).clamp(-1, 3))
    torch.testing.assert_close(shaped("asymmetric_clip", "by_kept_share"), plain.clamp(-1, 3) / 4)
    stds = [torch.tensor([t.trajectory_return for t in trajectories[i : i + 4]]).std(correction=0) for i in (0, 4)]
    factor_N = torch.stack(stds)[tokens.trajectory_N // 4] / max(stds)
    torch.testing.assert_close(shaped("by_group_std"), plain * factor_N, rtol=1e-4, atol=1e-5)
    factor_N = (len(tokens) / 7 / tokens.lengths_B)[tokens.trajectory_N]
    torch.testing.assert_close(shaped("by_length"), plain * factor_N)


@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - {"istar", "otb", "remax"}))
def test_segmentation_does_not_change_advantages(make_trajectories, name):
    whole = [
        PaidTrajectory(
            **vars(dataclasses.replace(trajectory, true_advantages=trajectory.turn_rewards)),
            component_returns={"environment": trajectory.trajectory_return},
        )
        for trajectory in make_trajectories(4, context="full", num_turns=3)
    ]
    config = UpdateConfig(advantage=name, gamma=0.9, gae_lambda=0.8, gamma_turn=0.95, lambda_turn=0.7)
    advantages = []
    for trajectories in (whole, [dataclasses.replace(t, segments=by_turn(*t.segments)) for t in whole]):
        tokens = ResponseTokens(trajectories)
        values_N = torch.linspace(-1, 0, len(tokens))
        credit = credit_of(trajectories, tokens, config, values_N, None, values_N if config.needs_critic else None)
        advantages.append(credit.advantages_N)
    assert advantages[0].any()
    assert torch.equal(*advantages)


def test_component_of_some_trajectories_is_zero(make_trajectories):
    """As in a mixture, of which one part has the component."""
    trajectories = [
        PaidTrajectory(**vars(trajectory), component_returns={"environment": trajectory.trajectory_return} | extra)
        for trajectory, extra in zip(
            make_trajectories(8), [{"length": -1.0 * n} for n in range(4)] + [{}] * 4, strict=True
        )
    ]
    tokens = ResponseTokens(trajectories)
    credit = credit_of(trajectories, tokens, UpdateConfig(advantage="gdpo"), torch.zeros(len(tokens)), None, None)
    assert credit.advantages_N.isfinite().all()
    assert credit.advantages_N.any()
