"""Denominator of the clipped ratio: the policy at the start of the update, or the behaviour policy."""

import dataclasses

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.device import Device
from starpo.ragen.config.update import OptimiserConfig, UpdateConfig
from starpo.ragen.learning.learners.data.batches import micro_batches
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.scoring import ResponseScores, row_tokens, score
from starpo.ragen.learning.learners.torch_learner import TorchLearner

PLAIN = OptimiserConfig(learning_rate=1e-3, max_gradient_norm=None)
START = UpdateConfig(advantage="grpo", num_minibatches=1, clip_low=0.2, clip_high=0.2, optimiser=PLAIN)
BEHAVIOUR = UpdateConfig(**{**START.model_dump(), "ratio_to": "behaviour"})


def sampled_by(log_ratio: float, folder: str, trajectories: list) -> list:
    """The same trajectories, as if sampled by a policy that gives each token e^-log_ratio times the probability."""
    tokens, runner = ResponseTokens(trajectories), MicroBatchRunner(Device(), 1, "float32")
    model, _ = load_policy(folder, torch.float32)
    batches = micro_batches(
        tokens, np.arange(len(tokens.segments)), START.micro_batch_tokens, row_tokens=row_tokens(model)
    )
    logprobs_N = score(ResponseScores(model), batches, len(tokens), 1.0, runner).logprobs_N.numpy() - log_ratio
    segments = []
    for segment, start in zip(tokens.segments, tokens.segment_start.tolist(), strict=True):
        behaviour = np.zeros(len(segment.token_ids), dtype=np.float32)
        behaviour[segment.response_mask] = logprobs_N[start : start + segment.response_mask.sum()]
        segments.append(dataclasses.replace(segment, behaviour_logprobs=behaviour))
    counts = np.cumsum([len(trajectory.segments) for trajectory in trajectories])
    return [
        dataclasses.replace(trajectory, segments=tuple(segments[stop - len(trajectory.segments) : stop]))
        for trajectory, stop in zip(trajectories, counts.tolist(), strict=True)
    ]


def first_step(config: UpdateConfig, folder: str, trajectories: list, context) -> dict[str, float]:
    learner = TorchLearner(config, num_threads=1)
    learner.load(folder, "start", None)
    return learner.update(trajectories, context).metrics


def test_behaviour_ratio_weighs_first_step(policy_folder, make_trajectories, context):
    """Every token is 1.1 times as probable as when sampled, within the clip, so the gradient is 1.1 times as large."""
    trajectories = sampled_by(np.log(1.1), policy_folder, make_trajectories(4))
    start, behaviour = (first_step(c, policy_folder, trajectories, context) for c in (START, BEHAVIOUR))
    assert start["update/ratio_mean"] == pytest.approx(1)
    assert behaviour["update/ratio_mean"] == pytest.approx(1.1, rel=1e-5)
    assert behaviour["update/gradient_norm"] == pytest.approx(1.1 * start["update/gradient_norm"], rel=1e-4)
    assert start["update/clip_fraction"] == behaviour["update/clip_fraction"] == 0


def test_behaviour_ratio_clips_earlier_drift(policy_folder, make_trajectories, context):
    """All tokens are 1.5 times as probable, beyond 1.2: those with a positive advantage are clipped, others are not."""
    trajectories = sampled_by(np.log(1.5), policy_folder, make_trajectories(4))
    start, behaviour = (first_step(c, policy_folder, trajectories, context) for c in (START, BEHAVIOUR))
    returns = np.array([trajectory.normalised_return for trajectory in trajectories])
    lengths = np.array([trajectory.num_response_tokens for trajectory in trajectories])
    assert behaviour["update/clip_fraction_high"] == lengths[returns > returns.mean()].sum() / lengths.sum()
    assert behaviour["update/clip_fraction"] == behaviour["update/validity_before/clip_share"]
    assert start["update/clip_fraction"] == 0


def test_on_policy_behaviour_ratio_changes_nothing(policy_folder, make_trajectories, context):
    trajectories = sampled_by(0.0, policy_folder, make_trajectories(4))
    start, behaviour = (first_step(c, policy_folder, trajectories, context) for c in (START, BEHAVIOUR))
    assert behaviour == start


def test_the_sampler_is_corrected_for_once():
    with pytest.raises(ValidationError, match="correct for that policy a second time"):
        UpdateConfig(ratio_to="behaviour", importance_cap=2.0)
