"""Corrections of the difference between sampler and learner, through the real learner."""

import json
import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.update import UpdateConfig
from tests.ragen.learning.learners.conftest import loaded
from tests.ragen.learning.learners.test_objective import BASE, gradient, update
from tests.ragen.learning.learners.test_ratio import sampled_by


def test_sequence_weight_scales_its_gradient(policy_folder, make_trajectories, context):
    """Each token is 1.1 times as probable as when sampled; a sequence of n tokens has the weight 1.1^n, at most 1.3."""
    trajectories = sampled_by(math.log(1.1), policy_folder, make_trajectories(4, context="full"))
    lengths = [trajectory.num_response_tokens for trajectory in trajectories]
    settings = {"importance_cap": 1.3, "aggregation": "token_mean"}
    metrics = update(policy_folder, trajectories, context, importance_unit="sequence", **settings).metrics
    weights = [min(1.1**length, 1.3) for length in lengths]
    mean = sum(weight * length for weight, length in zip(weights, lengths, strict=True)) / sum(lengths)
    assert metrics["update/importance_mean"] == pytest.approx(mean, rel=1e-4)
    beyond = sum(length for length in lengths if 1.1**length > 1.3)
    assert metrics["update/importance_outside_share"] == pytest.approx(beyond / sum(lengths))
    geometric = {"importance_unit": "sequence_geometric", **settings}
    plain, weighted = (
        gradient(policy_folder, trajectories, context, **more) for more in ({"aggregation": "token_mean"}, geometric)
    )
    assert float(weighted.norm() / plain.norm()) == pytest.approx(1.1, rel=1e-4)


def test_masked_sequences_have_no_gradient(policy_folder, make_trajectories, context):
    trajectories = sampled_by(math.log(1.1), policy_folder, make_trajectories(4))
    settings = {"importance_cap": 1.05, "importance_unit": "sequence_geometric", "importance_outside": "mask"}
    metrics = update(policy_folder, trajectories, context, **settings).metrics
    assert metrics["update/importance_outside_share"] == 1
    assert metrics["update/gradient_norm"] == metrics["update/policy_loss"] == 0


def test_left_sequences_count_as_clipped(policy_folder, make_trajectories, context):
    """The policy gives every token e^-0.3 times the sampler's probability: all negative advantages are left out."""
    trajectories = sampled_by(-0.3, policy_folder, make_trajectories(4))
    mean = sum(trajectory.trajectory_return for trajectory in trajectories) / 4
    lengths = [trajectory.num_response_tokens for trajectory in trajectories]
    is_bad = [trajectory.trajectory_return < mean for trajectory in trajectories]
    near, far = (
        update(policy_folder, trajectories, context, negative_max_kl=limit, aggregation="token_mean").metrics
        for limit in (0.31, 0.29)
    )
    share = sum(length for length, bad in zip(lengths, is_bad, strict=True) if bad) / sum(lengths)
    assert (near["update/clip_fraction"], far["update/clip_fraction_low"]) == (0, pytest.approx(share))
    gained = [max(t.trajectory_return - mean, 0) * n for t, n in zip(trajectories, lengths, strict=True)]
    assert far["update/policy_loss"] == pytest.approx(-sum(gained) / sum(lengths), rel=1e-5)


def test_weighted_kl_starts_at_the_reference(policy_folder, make_trajectories, context):
    """At the reference both divergences and their gradients are 0; after a step in the loss they differ."""
    settings = {"kl_coefficient": 1.0, "num_epochs": 2}
    norms = []
    for should_weigh in (False, True):
        config = UpdateConfig(**{**BASE, **settings, "should_weigh_kl": should_weigh})
        metrics = loaded(config, policy_folder, policy_folder).update(make_trajectories(4), context).metrics
        norms.append((metrics["update/gradient_norm"], metrics["update/kl_reference"]))
    assert norms[0] != norms[1]
    assert norms[1] == pytest.approx(norms[0], rel=0.2)


def test_luspo_matches_naive_loop(policy_folder, make_trajectories, context):
    """Mean over sequences of the length times the clipped term of the sequence, over max_response_tokens."""
    trajectories = sampled_by(0.05, policy_folder, make_trajectories(4, context="full"))
    luspo = {"ratio": "sequence", "ratio_to": "behaviour", "aggregation": "dr_grpo", "clip_high": 0.04}
    loss = update(policy_folder, trajectories, context, **luspo).metrics["update/policy_loss"]
    mean, total = sum(trajectory.trajectory_return for trajectory in trajectories) / 4, 0.0
    for trajectory in trajectories:
        ratio, advantage = math.exp(0.05), trajectory.trajectory_return - mean
        clipped = min(max(ratio, 0.8), 1.04)
        total -= trajectory.num_response_tokens * min(ratio * advantage, clipped * advantage) / 4
    assert loss * context.max_response_tokens == pytest.approx(total, rel=1e-4)


def test_certain_tokens_have_no_surrogate(policy_folder, make_trajectories, context):
    """The gradient is that of the most uncertain fifth alone, in the same denominator: a loop in float64."""
    trajectories = make_trajectories(4)
    actual = gradient(policy_folder, trajectories, context, uncertain_share=0.2, aggregation="token_mean")
    model = load_policy(policy_folder)[0].double()
    mean, tokens = sum(trajectory.trajectory_return for trajectory in trajectories) / 4, []
    for trajectory in trajectories:
        for segment in trajectory.segments:
            ids = torch.from_numpy(segment.token_ids)
            logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], -1)
            for place in np.flatnonzero(segment.response_mask):
                row = logprobs[place - 1]
                entropy = -float((row.exp() * row).sum().detach())
                tokens.append((entropy, -(trajectory.trajectory_return - mean) * row[ids[place]]))
    bound = sorted((entropy for entropy, _ in tokens), reverse=True)[math.ceil(0.2 * len(tokens)) - 1]
    kept = [token for token in tokens if token[0] > bound - 1e-6]  # equal after equal prefixes
    loss = sum(term for _, term in kept) / len(tokens)
    expected = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    torch.testing.assert_close(actual.double(), torch.cat([g.flatten() for g in expected]), atol=1e-6, rtol=2e-3)
    metrics = update(policy_folder, trajectories, context, uncertain_share=0.2).metrics
    assert metrics["update/uncertain_share"] == pytest.approx(len(kept) / len(tokens))


def test_entropy_level_kept_in_checkpoint(policy_folder, make_trajectories, context, tmp_path):
    """The second update of one learner, and of one that loads the first one's checkpoint, continue alike."""
    config = UpdateConfig(**{**BASE, "entropy_target": 50.0, "entropy_step": 0.25})
    first = loaded(config, policy_folder)
    metrics = [first.update(make_trajectories(4), context).metrics]
    first.save(str(tmp_path), "first")
    metrics.append(first.update(make_trajectories(4), context).metrics)
    again = loaded(config, str(tmp_path)).update(make_trajectories(4), context).metrics
    assert [each["update/entropy_coefficient"] for each in metrics] == [0, 0.25]
    assert [each["update/entropy_level"] for each in metrics] == [0.25, 0.5]
    assert again == metrics[1]
    constant = update(str(tmp_path), make_trajectories(4), context, entropy_coefficient=0.25).metrics
    assert constant["update/policy_loss"] == again["update/policy_loss"]


def test_trainer_file_unchanged_without_target(policy_folder, make_trajectories, context, tmp_path):
    learner = loaded(UpdateConfig(**BASE), policy_folder)
    learner.update(make_trajectories(4), context)
    learner.save(str(tmp_path), "first")
    assert list(json.loads((tmp_path / "trainer.json").read_text())) == [
        "format_version", "num_updates", "num_steps", "optimisers",
    ]  # fmt: skip


@pytest.mark.parametrize("size", [16, 8192])
def test_observations_match_naive_loop(policy_folder, make_trajectories, context, size):
    """The gradient grows by that of the mean cross-entropy on what lies between two responses, in float64."""
    trajectories = make_trajectories(4, context="full", num_turns=3)
    settings = {"micro_batch_tokens": size}
    without, with_them = (
        gradient(policy_folder, trajectories, context, observation_coefficient=weight, **settings)
        for weight in (0.0, 0.5)
    )
    model = load_policy(policy_folder)[0].double()
    terms = []
    for (segment,) in (trajectory.segments for trajectory in trajectories):
        ids = torch.from_numpy(segment.token_ids)
        logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], -1)
        first = int(np.flatnonzero(segment.response_mask)[0])
        terms += [-logprobs[n - 1, ids[n]] for n in range(first, len(ids)) if not segment.response_mask[n]]
    loss = torch.stack(terms).mean()
    expected = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    expected = 0.5 * torch.cat([g.flatten() for g in expected])
    torch.testing.assert_close((with_them - without).double(), expected, atol=1e-6, rtol=2e-3)
    metrics = update(policy_folder, trajectories, context, observation_coefficient=0.5, **settings).metrics
    assert metrics["update/observation_loss"] == pytest.approx(loss.item(), rel=1e-4)
    plain = update(policy_folder, trajectories, context, **settings).metrics
    assert metrics["update/policy_loss"] == pytest.approx(plain["update/policy_loss"], rel=1e-5)


def test_token_weights_report_nothing_new(policy_folder, make_trajectories, context):
    metrics = update(policy_folder, make_trajectories(4), context, importance_cap=2.0).metrics
    assert not [name for name in metrics if "importance" in name]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"importance_unit": "sequence"}, "importance_cap = None computes none: set importance_cap"),
        ({"importance_floor": 0.5}, "importance_cap = None computes none"),
        ({"uncertain_share": 0.2, "scored_share": 0.5}, "needs the entropy of every token"),
        ({"entropy_target": 0.5, "entropy_coefficient": 2.0}, "between 0 and 1: set it to at most 1"),
        ({"observation_coefficient": 0.1, "advantage": "gae"}, "critic beside it takes passes of responses alone"),
        ({"observation_coefficient": 0.1, "turn_order": "reverse"}, "turn_order = 'reverse' takes passes"),
        ({"should_weigh_kl": True}, "an estimate of the reverse KL, but kl_coefficient = 0"),
        ({"should_weigh_kl": True, "kl_coefficient": 0.1, "kl_estimator": "k2"}, "kl_estimator = 'k2'"),
        ({"should_weigh_kl": True, "kl_coefficient": 0.1, "kl_placement": "reward"}, "kl_placement = 'reward'"),
    ],
)
def test_corrections_without_effect_are_refused(settings, reason):
    with pytest.raises(ValidationError, match=reason):
        UpdateConfig(**{**BASE, **settings})
