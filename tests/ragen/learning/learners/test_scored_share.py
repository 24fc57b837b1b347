"""`update.scored_share`: the policy scores a share of the groups, and the rollout's log-probs stand for the rest."""

import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from starpo.ragen.config.update import OptimiserConfig, UpdateConfig
from starpo.ragen.learning.learners.measuring import token_logprobs
from starpo.ragen.learning.learners.models.scoring import ResponseScores
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.schemas.validate import validate

ALL = UpdateConfig(
    advantage="grpo", advantage_scale="batch", num_minibatches=2, kl_coefficient=0.1,
    optimiser=OptimiserConfig(learning_rate=1e-3, max_gradient_norm=None),
)  # fmt: skip
PART = ALL.model_copy(update={"scored_share": 0.34})
AFTER = ("kl_behaviour", "kl_reference")
BEFORE = ("entropy", "old_behaviour_gap")


def loaded(config, folder):
    learner = TorchLearner(config, num_threads=1)
    learner.load(folder, "start", folder)
    return learner


def weights(learner, folder):
    learner.save(str(folder), "after")
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def played(policy_folder, make_trajectories, context):
    """Three groups of four, sampled by the policy itself: their log-probs are its own."""
    trajectories = make_trajectories(12, context="full")
    logprobs = iter(token_logprobs(loaded(ALL, policy_folder), trajectories, context).tolist())

    def rescored(segment):
        values = [next(logprobs) if is_response else 0 for is_response in segment.response_mask]
        return dataclasses.replace(segment, behaviour_logprobs=np.array(values, dtype=np.float32))

    return [dataclasses.replace(one, segments=tuple(map(rescored, one.segments))) for one in trajectories]


@pytest.fixture
def scored(monkeypatch):
    """Numbers of response tokens of the forward passes without gradients."""
    counts, forward = [], ResponseScores.forward

    def counted(self, batch, *args):
        if not torch.is_grad_enabled():
            counts.append(len(batch.token_M))
        return forward(self, batch, *args)

    monkeypatch.setattr(ResponseScores, "forward", counted)
    return counts


def groups_with(samples, column):
    known = samples.filter(samples[column].is_valid())
    return sorted(set(known["group_id"].to_pylist()))


def test_an_exact_engine_is_believed(policy_folder, played, context, scored, tmp_path):
    """The same step and, on the share, the same numbers, at a third of the forward passes beside the reference's."""
    learner, share = loaded(ALL, policy_folder), loaded(PART, policy_folder)
    full = learner.update(played, context)
    num_tokens = int(full.metrics["update/num_tokens"])
    assert sum(scored) == 3 * num_tokens  # before, reference, after
    scored.clear()
    part = share.update(played, context)
    share.save(str(tmp_path / "share"), "after")
    learner.save(str(tmp_path / "all"), "after")
    expected, actual = (load_file(tmp_path / name / "model.safetensors") for name in ("all", "share"))
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, atol=1e-6, rtol=0)

    validate(part.samples, "samples")
    (group,) = groups_with(part.samples, "entropy")
    is_scored = [one == group for one in part.samples["group_id"].to_pylist()]
    assert sum(scored) == num_tokens + 2 * sum(np.array(part.samples["num_tokens"])[is_scored])
    for name in AFTER + BEFORE:
        assert part.samples[name].is_valid().to_pylist() == is_scored, name
        expected = np.array(full.samples[name])[is_scored]
        np.testing.assert_allclose(part.samples[name].drop_null(), expected, atol=1e-5, err_msg=name)
    scored_tokens = zip(*(part.trained_tokens()[name].to_pylist() for name in ("group_id", "entropies")), strict=True)
    assert all((len(entropies) > 0) == (name == group) for name, entropies in scored_tokens)
    of_all = ("advantage", "mean_ratio", "clip_fraction", "loss_share")
    for name in of_all:
        np.testing.assert_allclose(part.samples[name], full.samples[name], atol=1e-5, err_msg=name)
    assert part.metrics.pop("update/old_is_from_rollout") == 1
    assert part.metrics.keys() == full.metrics.keys()


def test_metrics_average_over_scored_tokens(policy_folder, played, context):
    result = loaded(PART, policy_folder).update(played, context)
    samples = result.samples.filter(result.samples["entropy"].is_valid())
    num_tokens = np.array(samples["num_tokens"])
    for column, name in (("entropy", "entropy"), ("kl_behaviour", "kl_behaviour"), ("kl_reference", "kl_reference")):
        expected = float(np.array(samples[column]) @ num_tokens / num_tokens.sum())
        assert result.metrics[f"update/{name}"] == pytest.approx(expected, rel=1e-5), name
    assert result.metrics["update/old_behaviour_gap_max"] == max(samples["old_behaviour_gap"].to_pylist()) < 1e-5


def test_inexact_engine_logprobs_are_recomputed(policy_folder, played, context, tmp_path):
    """Everything is scored before the steps, so the update is that of a share of 1; the share alone after them."""

    def shifted(segment):
        logprobs = segment.behaviour_logprobs + np.float32(2e-3) * (segment.turn == 1)
        return dataclasses.replace(segment, behaviour_logprobs=logprobs)

    trajectories = [dataclasses.replace(one, segments=tuple(map(shifted, one.segments))) for one in played]
    learner, share = loaded(ALL, policy_folder), loaded(PART, policy_folder)
    full = learner.update(trajectories, context)
    part = share.update(trajectories, context)
    assert weights(share, tmp_path / "share") == weights(learner, tmp_path / "all")
    assert part.metrics["update/old_is_from_rollout"] == 0
    assert part.metrics["update/entropy"] == full.metrics["update/entropy"]
    assert part.samples.select(BEFORE).equals(full.samples.select(BEFORE))
    assert len(groups_with(part.samples, "kl_behaviour")) == 1
    validate(part.samples, "samples")


def test_half_precision_scores_once_before(policy_folder, played, context, scored):
    """Its rounding is beyond what is believed: a comparison of the share would be a pass for nothing."""
    part = loaded(PART.model_copy(update={"dtype": "bfloat16", "kl_coefficient": 0.0}), policy_folder)
    result = part.update(played, context)
    (group,) = groups_with(result.samples, "kl_behaviour")
    after = result.samples.filter([one == group for one in result.samples["group_id"].to_pylist()])
    assert sum(scored) == result.metrics["update/num_tokens"] + sum(after["num_tokens"].to_pylist())
    assert result.metrics["update/old_is_from_rollout"] == 0
    assert result.samples["entropy"].null_count == 0


@pytest.mark.parametrize(("share", "count"), [(0.01, 1), (0.34, 1), (0.5, 2), (0.84, 3), (0.99, 3)])
def test_at_least_one_group_is_scored(policy_folder, played, context, share, count):
    config = ALL.model_copy(update={"scored_share": share})
    result = loaded(config, policy_folder).update(played, context)
    assert len(groups_with(result.samples, "entropy")) == count


@pytest.mark.ci
def test_the_choice_is_the_updates_own(policy_folder, played, context):
    chosen = [
        groups_with(
            loaded(PART, policy_folder).update(played, dataclasses.replace(context, seed=seed)).samples, "entropy"
        )
        for seed in (1, 1, 2, 3, 4, 5)
    ]
    assert chosen[0] == chosen[1]
    assert len(set(map(tuple, chosen))) > 1


def test_groups_without_tokens_are_not_scored(policy_folder, played, context):
    """Two groups of three have no response: there is nothing to measure on them."""
    silent = [dataclasses.replace(t, segments=()) for t in played[:8]] + played[8:]
    for seed in range(4):
        samples = loaded(PART, policy_folder).update(silent, dataclasses.replace(context, seed=seed)).samples
        assert samples["entropy"].null_count == 0  # 0 where there is no token
        validate(samples, "samples")


def test_full_probability_estimators_reject_partial_share():
    with pytest.raises(ValueError, match=r"advantage = 'otb' needs the probabilities of every token.*scored_share = 1"):
        UpdateConfig(advantage="otb", scored_share=0.5)
