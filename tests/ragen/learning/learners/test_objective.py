"""Objectives through the real learner: masks, ratios, surrogates and turn orders match their definitions."""

import dataclasses
import math
import sys
import traceback
from itertools import product

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.update import CriticConfig, OptimiserConfig, UpdateConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.registry import ADVANTAGES, SURROGATES
from starpo.ragen.learning.learners.data.paid import PaidTrajectory
from starpo.ragen.learning.learners.data.spans import ANSWER, FORMAT, KINDS, THINK
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.measuring import initial_gradient
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.learners.turn_orders import MiniBatch
from starpo.ragen.learning.objectives.ratios import RATIOS
from starpo.ragen.learning.objectives.surrogates import ppo
from starpo.ragen.methods.sequential_turns import last_turn_first
from tests.ragen.learning.learners.test_ratio import sampled_by

PLAIN = OptimiserConfig(learning_rate=1e-3, max_gradient_norm=None)
BY_TOKEN = {"gmpo", "dppo_tv", "dppo_kl"}
BASE = {"advantage": "grpo", "num_minibatches": 1, "optimiser": PLAIN, "critic": CriticConfig(optimiser=PLAIN)}


def shifted(log_ratios: dict[int, float], folder: str, trajectories: list) -> list:
    """The same trajectories, sampled by a policy that gives a token of each kind e^-log_ratio times the probability."""
    return [
        dataclasses.replace(
            trajectory,
            segments=tuple(
                dataclasses.replace(
                    segment,
                    behaviour_logprobs=segment.behaviour_logprobs
                    - np.array([log_ratios.get(kind, 0.0) for kind in segment.kind.tolist()], dtype=np.float32)
                    * segment.response_mask,
                )
                for segment in trajectory.segments
            ),
        )
        for trajectory in sampled_by(0.0, folder, trajectories)
    ]


def update(folder, trajectories, context, **settings):
    learner = TorchLearner(UpdateConfig(**{**BASE, **settings}), num_threads=1)
    learner.load(folder, "start", None)
    return learner.update(trajectories, context)


def gradient(folder, trajectories, context, **settings) -> torch.Tensor:
    learner = TorchLearner(UpdateConfig(**{**BASE, **settings}), num_threads=1)
    learner.load(folder, "start", None)
    return initial_gradient(learner, trajectories, context)


def test_answer_loss_matches_naive_loop(policy_folder, make_trajectories, context):
    trajectories = make_trajectories(4)
    actual = gradient(policy_folder, trajectories, context, loss_on="answer", aggregation="token_mean")
    model, _ = load_policy(policy_folder)
    returns = [t.trajectory_return for t in trajectories]
    total, count = torch.zeros(()), 0
    for trajectory in trajectories:
        for segment in trajectory.segments:
            ids = torch.from_numpy(segment.token_ids)
            logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], -1).gather(1, ids[1:, None])[:, 0]
            is_answer = torch.from_numpy(segment.kind[1:] == ANSWER)
            total = total - (trajectory.trajectory_return - np.mean(returns)) * logprobs[is_answer].sum()
            count += int(is_answer.sum())
    expected = torch.autograd.grad(total / count, [p for p in model.parameters() if p.requires_grad])
    torch.testing.assert_close(actual, torch.cat([g.flatten() for g in expected]), atol=1e-5, rtol=1e-3)


def test_kind_masks_add_up_to_whole(policy_folder, make_trajectories, context):
    trajectories = make_trajectories(4)
    kinds = ResponseTokens(trajectories).kind_N
    mean = {"aggregation": "token_mean"}
    parts = [
        gradient(policy_folder, trajectories, context, loss_on=name, **mean) * (kinds == kind).sum()
        for name, kind in KINDS.items()
    ]
    whole = gradient(policy_folder, trajectories, context, **mean) * len(kinds)
    torch.testing.assert_close(sum(parts), whole, atol=1e-4, rtol=1e-3)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("surrogate", "ratio"),
    [*product(sorted(set(SURROGATES) - BY_TOKEN), RATIOS), *product(sorted(BY_TOKEN), ["token"])],
)
def test_micro_batches_change_no_objective(policy_folder, make_trajectories, context, surrogate, ratio):
    """Micro-batches of 16 tokens and a single one agree; another policy sampled the tokens, so ratios are not 1."""
    trajectories = sampled_by(0.1, policy_folder, make_trajectories(6, context="full"))
    settings = {"surrogate": surrogate, "ratio": ratio, "ratio_to": "behaviour", "clip_high": 0.05}
    small, large = (
        gradient(policy_folder, trajectories, context, micro_batch_tokens=size, **settings) for size in (16, 8192)
    )
    assert small.abs().max() > 0 or surrogate in ("ppo", "loop", "dual_clip")
    torch.testing.assert_close(small, large, atol=1e-6, rtol=1e-3)


def measured(trajectory: Trajectory) -> PaidTrajectory:
    """The same trajectory, whose return is of two components, and whose turns have true advantages."""
    first, *rest = trajectory.turn_rewards.tolist()
    credited = dataclasses.replace(trajectory, true_advantages=trajectory.turn_rewards - 0.5)
    return PaidTrajectory(**vars(credited), component_returns={"first": first, "rest": sum(rest)})


@pytest.mark.ci
@pytest.mark.parametrize("context_mode", ["full", "window"])
@pytest.mark.parametrize("advantage", sorted(set(ADVANTAGES) - {"remax"}))
def test_every_estimator_trains(policy_folder, make_trajectories, context, advantage, context_mode):
    trajectories = [measured(trajectory) for trajectory in make_trajectories(8, context=context_mode)]
    metrics = update(policy_folder, trajectories, context, advantage=advantage, shaping=["by_length"]).metrics
    assert metrics["update/gradient_norm"] > 0
    needs_critic = UpdateConfig(advantage=advantage).needs_critic
    assert ("update/value_loss" in metrics) == ("update/explained_variance" in metrics) == needs_critic
    assert all(name.startswith("update/") and math.isfinite(value) for name, value in metrics.items())


def test_critic_fits_one_token_per_turn(policy_folder, make_trajectories, context):
    """A new critic predicts 0, so the first value loss is the mean over turns of half the squared reward to go."""
    trajectories = make_trajectories(4)
    result = update(policy_folder, trajectories, context, advantage="turn_gae")
    targets = [t.trajectory_return - sum(t.turn_rewards[:k]) for t in trajectories for k in range(2)]
    assert result.metrics["update/value_loss"] == pytest.approx(np.mean(np.square(targets)) / 2, rel=1e-5)


def test_reverse_order_steps_last_turn_first(policy_folder, make_trajectories, context, monkeypatch):
    trajectories = make_trajectories(4, num_turns=3)
    result = update(policy_folder, trajectories, context, turn_order="reverse", ratio="turn_geometric")
    assert result.metrics["update/num_steps"] == 3
    last_only = [
        dataclasses.replace(t, segments=t.segments[2:]) for t in trajectories
    ]  # its return is still the whole trajectory's, so advantages are the same
    alone = update(policy_folder, last_only, context, ratio="turn_geometric")
    learner = TorchLearner(UpdateConfig(**{**BASE, "turn_order": "reverse", "ratio": "turn_geometric"}), num_threads=1)
    learner.load(policy_folder, "start", None)
    norms, policy = [], learner._models["policy"]
    step = policy.step
    monkeypatch.setattr(policy, "step", lambda factor: norms.append(step(factor)) or norms[-1])
    learner.update(trajectories, context)
    assert norms[0] == pytest.approx(alone.metrics["update/gradient_norm"], rel=1e-4)


def test_clip_fraction_excludes_tokens_without_loss(policy_folder, make_trajectories, context):
    """All are 1.5 times as probable as when sampled, beyond 1.2: tokens with a positive advantage are clipped."""
    trajectories = sampled_by(np.log(1.5), policy_folder, make_trajectories(4))
    tokens = ResponseTokens(trajectories)
    mean = np.mean([t.trajectory_return for t in trajectories])
    is_good_N = torch.tensor([t.trajectory_return > mean for t in trajectories])[tokens.trajectory_N]
    for loss_on in ("all", "answer"):
        metrics = update(policy_folder, trajectories, context, loss_on=loss_on, ratio_to="behaviour").metrics
        share = is_good_N[tokens.mask(loss_on)].double().mean()
        assert metrics["update/clip_fraction"] == pytest.approx(float(share))


def test_ratio_excludes_tokens_without_loss(policy_folder, make_trajectories, context):
    """The policy gives e times the probability to each token without a loss, and the same to the answers."""
    trajectories = shifted({FORMAT: 1.0, THINK: 1.0, ANSWER: 0.0}, policy_folder, make_trajectories(4, context="full"))
    for settings in ({"ratio": "sequence"}, {"ratio": "turn_geometric"}, {"ratio": "turn_arithmetic"}):
        result = update(policy_folder, trajectories, context, loss_on="answer", ratio_to="behaviour", **settings)
        assert result.metrics["update/ratio_mean"] == pytest.approx(1, abs=1e-5)
        assert result.metrics["update/ratio_max"] == pytest.approx(1, abs=1e-5)
        assert result.metrics["update/clip_fraction"] == result.metrics["update/validity_before/clip_share"] == 0
        assert result.samples["mean_ratio"].to_pylist() == pytest.approx([1] * 4, abs=1e-5)


@pytest.mark.ci
@pytest.mark.parametrize("loss_on", ["all", "answer", "think"])
@pytest.mark.parametrize("context_mode", ["full", "window"])
@pytest.mark.parametrize(
    "settings",
    [
        {"ratio": "sequence"},
        {"ratio": "turn_geometric"},
        {"ratio": "turn_arithmetic"},
        {"surrogate": "gmpo", "surrogate_options": {"log_clip": 0.2}},
    ],
)
def test_unit_ratios_match_naive_float64_loop(
    policy_folder, make_trajectories, context, settings, context_mode, loss_on
):
    """Means of a unit are over its tokens with a loss; each kind of token has moved by another amount."""
    moved = {FORMAT: 0.6, THINK: -0.5, ANSWER: 0.1}
    trajectories = shifted(moved, policy_folder, make_trajectories(4, context=context_mode))
    actual = gradient(
        policy_folder,
        trajectories,
        context,
        loss_on=loss_on,
        ratio_to="behaviour",
        aggregation="token_mean",
        **settings,
    )
    model = load_policy(policy_folder)[0].double()
    mean = np.mean([t.trajectory_return for t in trajectories])
    losses = []
    for trajectory in trajectories:
        advantage = trajectory.trajectory_return - mean
        for segment in trajectory.segments:
            ids = torch.from_numpy(segment.token_ids)
            logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], -1).gather(1, ids[1:, None])[:, 0]
            units: dict[int, list[torch.Tensor]] = {}
            for place in np.flatnonzero(segment.response_mask):
                if loss_on == "all" or segment.kind[place] == KINDS[loss_on]:
                    unit = segment.turn[place] if settings.get("ratio", "").startswith("turn") else 0
                    log_ratio = logprobs[place - 1] - segment.behaviour_logprobs[place].item()
                    units.setdefault(unit, []).append(log_ratio)
            losses += [term for unit in units.values() for term in naive_terms(torch.stack(unit), advantage, settings)]
    expected = torch.autograd.grad(torch.stack(losses).mean(), [p for p in model.parameters() if p.requires_grad])
    expected = torch.cat([g.flatten() for g in expected])
    assert expected.norm() > 1e-3
    torch.testing.assert_close(actual.double(), expected, atol=1e-6, rtol=2e-3)


def naive_terms(log_ratios: torch.Tensor, advantage: float, settings: dict) -> list[torch.Tensor]:
    """Loss of each token of a unit, whose ratio is that of the unit."""
    if settings.get("surrogate") == "gmpo":
        clipped = log_ratios.clamp(max=0.2) if advantage > 0 else log_ratios.clamp(min=-0.2)
        return [-clipped.mean().exp() * advantage] * len(log_ratios)
    ratio = log_ratios.exp().mean() if settings["ratio"] == "turn_arithmetic" else log_ratios.mean().exp()
    return [-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)] * len(log_ratios)


def test_reverse_order_weight_excludes_masked_tokens(make_trajectories):
    """The step of the last turn moves answers by 0.1 and everything else by 5: the factor is e^0.1."""
    tokens = ResponseTokens(make_trajectories(4))
    old_N, advantages_N = tokens.behaviour_logprobs_N, torch.linspace(-1, 1, len(tokens))
    moved_N = old_N + torch.where(tokens.mask("answer"), 0.1, 5.0)
    config = UpdateConfig(**{**BASE, "turn_order": "reverse", "ratio": "turn_geometric", "loss_on": "answer"})
    everything_N = torch.ones(len(tokens), dtype=torch.bool)
    (last, first) = last_turn_first(MiniBatch(config, tokens, everything_N, advantages_N, old_N, lambda: moved_N))
    assert last[1].tolist() == advantages_N.tolist()
    assert torch.equal(last[0], tokens.turn_N == 1)
    assert torch.equal(first[0], tokens.turn_N == 0)
    has_answer_B = tokens.sums(tokens.mask("answer") & (tokens.turn_N == 1)) > 0
    factor_N = torch.where(has_answer_B, math.exp(0.1), 1.0)[tokens.trajectory_N]
    torch.testing.assert_close(first[1], advantages_N * factor_N.float())
    assert has_answer_B.any()


def noting_its_callers(inputs):
    """PPO's surrogate, which notes the functions that called it."""
    callers.append([frame.name for frame in traceback.extract_stack()[:-1]])
    return ppo(inputs)


callers: list[list[str]] = []


def test_surrogate_call_depth_is_six(policy_folder, make_trajectories, context):
    update(policy_folder, make_trajectories(4), context, surrogate=f"{__name__}:noting_its_callers")
    calls = callers[-1][callers[-1].index("update", callers[-1].index(sys._getframe().f_code.co_name)) + 1 :]
    assert calls == ["update", "update_models", "accumulate", "run", "gradients", "__call__"]


@pytest.mark.ci
def test_learning_rate_scales_with_sample_size(policy_folder, make_trajectories, context):
    """Three trajectories of equal weight and one of nine times that weight: ESS = (144 / 84) / 4 = 0.42857."""
    trajectories = make_trajectories(4)
    sampled = sampled_by(0.0, policy_folder, trajectories)
    heavy = sampled[0].segments[0]
    place = int(np.flatnonzero(heavy.response_mask)[0])
    logprobs = heavy.behaviour_logprobs.copy()
    logprobs[place] -= math.log(9)
    first = dataclasses.replace(heavy, behaviour_logprobs=logprobs)
    sampled[0] = dataclasses.replace(sampled[0], segments=(first, *sampled[0].segments[1:]))
    whole, scaled = (
        update(policy_folder, sampled, context, effective_sample_reference=reference) for reference in (None, 1.0)
    )
    rates = [result.metrics["update/learning_rate"] for result in (whole, scaled)]
    assert rates[1] / rates[0] == pytest.approx((144 / 84 / 4) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"surrogate": "gmpo", "ratio": "sequence"}, "gmpo' takes the geometric mean"),
        ({"surrogate": "dppo_kl", "ratio": "sequence"}, "judges each token by its own probabilities"),
        ({"turn_order": "reverse", "ratio": "sequence"}, "may span several"),
        ({"shaping": ["zero"]}, "neither has a weight"),
        ({"importance_cap": 2.0, "effective_sample_reference": 0.5}, "set only one of them"),
        ({"surrogate_options": {"bound": 2.0}}, "takes no options"),
        ({"surrogate": "dual_clip", "surrogate_options": {"bound": 0.5}}, "bound"),
        ({"surrogate": "clip_cov", "surrogate_options": {"low": 5}}, "of 'clip_cov': low = 5 is not below high = 5"),
        ({"surrogate": "clip_cov", "surrogate_options": {"high": 0.5}}, "low = 1 is not below high = 0.5"),
        ({"advantage": "gigpo", "advantage_options": {"over": "rows"}}, "over"),
        ({"advantage": "grpo", "surrogate": "gmpo", "turn_order": "reverse"}, "surrogate = 'gmpo' may span several"),
        ({"advantage": "gdpo", "kl_coefficient": 0.1, "kl_placement": "reward"}, "set kl_placement = 'loss'"),
        ({"advantage": "monte_carlo", "kl_coefficient": 0.1, "kl_placement": "reward"}, "set kl_placement = 'loss'"),
        ({"advantage": "monte_carlo", "advantage_options": {"continuations": 1}}, "continuations"),
        ({"surrogate": "pop"}, "'pop' is not known here"),
        ({"shaping": ["by_lenght"]}, "'by_lenght' is not known here"),
    ],
)
def test_inconsistent_settings_are_rejected_with_reason(settings, reason):
    with pytest.raises((ValidationError, ValueError), match=reason):
        UpdateConfig(**{**BASE, **settings})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"update": {"advantage": "gigpo"}, "rollout": {"group_size": 1}}, "compares members of a group"),
        (
            {"update": {"importance_cap": 2.0}, "rollout": {"top_p": 0.9}},
            "top_p = 0.9 samples from a truncated distribution",
        ),
        ({"online_max_kl": 0.1, "rollout": {"top_p": 0.9}}, "set rollout.top_p = 1"),
        (
            {"update": {"effective_sample_reference": 0.9}, "rollout": {"top_p": 0.9}},
            "samples from a truncated distribution",
        ),
        (
            {"update": {"advantage": "grpo_batch", "shaping": ["by_group_std"]}, "rollout": {"group_size": 1}},
            "compares",
        ),
        (
            {"update": {"advantage": "maxrl", "advantage_scale": "none"}, "reward": {"normalisation": "mean"}},
            "set reward.normalisation = 'none'",
        ),
        (
            {
                "update": {
                    "advantage": "gdpo",
                    "advantage_scale": "none",
                    "advantage_options": {"weights": {"enviroment": 2.0}},
                }
            },
            "weights names 'enviroment', which is not one of reward.components",
        ),
        ({"update": {"advantage": "monte_carlo"}, "reward": {"normalisation": "mean"}}, "set reward.normalisation"),
        ({"update": {"advantage": "monte_carlo"}, "diagnostics": {"gradients_every": 2}}, "set it to 0"),
        ({"update": {"observation_coefficient": 0.1}, "agent": {"context": "window"}}, "set agent.context = 'full'"),
        ({"update": {"loss_on": "think"}, "agent": {"should_think": False}}, "the agent does not reason"),
    ],
)
def test_settings_without_data_are_rejected_early(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        preset("smoke", {"filter.should_drop_zero_variance": False, **settings})
