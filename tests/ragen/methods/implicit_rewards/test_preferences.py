"""The process reward model in a learner: an exact step, exact continuation, and no step without preferences."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.update import LoraConfig, OptimiserConfig, PRMConfig, UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.measuring import initial_gradient
from starpo.ragen.learning.learners.torch_learner import TorchLearner

SGD_LIKE = OptimiserConfig(learning_rate=1e-3, max_gradient_norm=None)
ISTAR = UpdateConfig(advantage="istar", ratio="turn_geometric", num_minibatches=2, optimiser=SGD_LIKE)
BETA = ISTAR.prm.beta


def loaded(folder: str | Path, config: UpdateConfig = ISTAR, threads: int = 1) -> TorchLearner:
    learner = TorchLearner(config, num_threads=threads)
    learner.load(str(folder), "start", None)
    return learner


def logprobs(folder: str | Path, trajectories) -> torch.Tensor:
    """Log-prob of every trajectory under a policy, with its graph, one whole sequence at a time; also the policy."""
    model, _ = load_policy(str(folder))
    sums = []
    for trajectory in trajectories:
        total = torch.zeros(())
        for segment in trajectory.segments:
            ids = torch.from_numpy(segment.token_ids)
            logs = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], -1).gather(1, ids[1:, None])[:, 0]
            total = total + logs[torch.from_numpy(segment.response_mask[1:])].sum()
        sums.append(total)
    return torch.stack(sums), model


@pytest.mark.parametrize("context_mode", ["full", "window"])
def test_step_matches_trajectory_dpo(policy_folder, make_trajectories, context, context_mode):
    """Compared with DPO's loss as in the paper, differentiated through the whole sequences of every pair."""
    trajectories = make_trajectories(8, context=context_mode)
    result = loaded(policy_folder).update(trajectories, context)
    sums, model = logprobs(policy_folder, trajectories)
    losses = [
        -torch.nn.functional.logsigmoid(BETA * (sums[a] - sums[a].detach()) - BETA * (sums[b] - sums[b].detach()))
        for a, better in enumerate(trajectories)
        for b, worse in enumerate(trajectories)
        if better.group_id == worse.group_id and better.normalised_return > worse.normalised_return
    ]
    torch.stack(losses).mean().backward()
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None))
    assert result.metrics["update/prm_pairs"] == len(losses) == 12
    assert result.metrics["update/prm_loss"] == pytest.approx(math.log(2), rel=1e-5)
    assert result.metrics["update/prm_gradient_norm"] == pytest.approx(norm, rel=1e-3)


def test_training_raises_accuracy_of_preferences(policy_folder, make_trajectories, context):
    eager = ISTAR.model_copy(update={"prm": PRMConfig(beta=0.5, optimiser=OptimiserConfig(learning_rate=0.01))})
    learner, trajectories, losses = loaded(policy_folder, eager), make_trajectories(8), []
    for iteration in range(6):
        result = learner.update(trajectories, dataclasses.replace(context, iteration=iteration))
        losses.append(result.metrics["update/prm_loss"])
    assert losses[-1] < 0.5 * losses[0]
    assert result.metrics["update/prm_accuracy"] >= 0.9  # random members may have equal responses


def test_resumed_model_equals_uninterrupted(policy_folder, make_trajectories, context, tmp_path):
    trajectories, second = make_trajectories(8), dataclasses.replace(context, iteration=1)
    through = loaded(policy_folder)
    through.update(trajectories, context)
    through.save(str(tmp_path / "once"), "once")
    again = loaded(tmp_path / "once", threads=2)
    results = [learner.update(trajectories, second) for learner in (through, again)]
    assert results[0].samples.equals(results[1].samples)
    for name, learner in (("a", through), ("b", again)):
        learner.save(str(tmp_path / name), "twice")
    files = [(tmp_path / name / "prm.safetensors").read_bytes() for name in ("a", "b")]
    assert files[0] == files[1] != (tmp_path / "once" / "prm.safetensors").read_bytes()


@pytest.mark.parametrize("activation_checkpointing", [False, True])
def test_measuring_takes_same_step_without_effects(policy_folder, make_trajectories, context, activation_checkpointing):
    """The step is taken in a copy, in all of its layers, and the copy is scored after it."""
    trajectories, eager = make_trajectories(8), PRMConfig(optimiser=OptimiserConfig(learning_rate=0.1))
    settings = {"num_minibatches": 1, "activation_checkpointing": activation_checkpointing, "prm": eager}
    one_step = ISTAR.model_copy(update=settings)
    measured, untouched = loaded(policy_folder, one_step), loaded(policy_folder, one_step)
    gradients = [initial_gradient(measured, trajectories, context) for _ in range(2)]
    assert torch.equal(*gradients)
    after, plain = (learner.update(trajectories, context) for learner in (measured, untouched))
    assert after.samples.equals(plain.samples)
    assert float(gradients[0].norm()) == pytest.approx(after.metrics["update/gradient_norm"], rel=1e-4)


def test_equal_returns_leave_model_unchanged(policy_folder, make_trajectories, context, tmp_path):
    even = [dataclasses.replace(t, normalised_return=1.0) for t in make_trajectories(8)]
    learner = loaded(policy_folder)
    metrics = learner.update(even, context).metrics
    learner.save(str(tmp_path), "after")
    stored, before = load_file(tmp_path / "prm.safetensors"), dict(load_policy(policy_folder)[0].named_parameters())
    assert metrics["update/prm_pairs"] == 0
    assert "update/prm_loss" not in metrics
    assert stored.keys() == before.keys()
    assert all(torch.equal(stored[name], before[name]) for name in before)


def test_other_estimators_have_none(policy_folder, make_trajectories, context, tmp_path):
    learner = loaded(policy_folder)
    learner.update(make_trajectories(8), context)
    learner.save(str(tmp_path / "istar"), "after")
    plain = UpdateConfig(advantage="grpo", optimiser=SGD_LIKE)
    other = loaded(tmp_path / "istar", plain)
    assert not any("prm" in name for name in other.update(make_trajectories(8), context).metrics)
    other.save(str(tmp_path / "grpo"), "after")
    assert not (tmp_path / "grpo" / "prm.safetensors").exists()


def test_with_adapters_it_has_adapters(policy_folder, make_trajectories, context, tmp_path):
    pytest.importorskip("peft")
    config = ISTAR.model_copy(update={"lora": LoraConfig(rank=2, alpha=2.0)})
    learner = loaded(policy_folder, config)
    learner.update(make_trajectories(8), context)
    learner.save(str(tmp_path / "adapters"), "after")
    stored = load_file(tmp_path / "adapters" / "prm.safetensors")
    assert stored
    assert all("lora" in name for name in stored)

    whole = loaded(policy_folder)
    whole.update(make_trajectories(8), context)
    whole.save(str(tmp_path / "whole"), "after")
    with pytest.raises(LearnerError, match="has a process reward model with full weights"):
        loaded(tmp_path / "whole", config)
