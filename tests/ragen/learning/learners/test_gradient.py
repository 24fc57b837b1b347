"""Gradient before the first step of an update: its value, and that computing it changes nothing."""

import dataclasses
import hashlib
from pathlib import Path

import pytest
import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.policy.tiny import make_model, make_tokenizer
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.update import CriticConfig, OptimiserConfig, UpdateConfig
from starpo.ragen.learning.learners.measuring import gradient_spreads, initial_gradient
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from tests.ragen.learning.learners.conftest import change, loaded

SGD_LIKE = OptimiserConfig(learning_rate=1e-3, max_gradient_norm=None)
GRPO = UpdateConfig(advantage="grpo", num_minibatches=1, optimiser=SGD_LIKE)
PPO = UpdateConfig(num_minibatches=2, optimiser=SGD_LIKE, critic=CriticConfig(optimiser=SGD_LIKE))


def digest(learner: TorchLearner, folder: Path) -> str:
    learner.save(str(folder), "after")
    return hashlib.sha256(b"".join(f.name.encode() + f.read_bytes() for f in sorted(folder.iterdir()))).hexdigest()


@pytest.mark.ci
def test_initial_gradient_matches_policy_gradient(policy_folder, make_trajectories, context) -> None:
    """The ratio is 1 before the first step: the gradient of -sum(advantage * logprob) / (trajectories * tokens)."""
    trajectories = make_trajectories(6)
    model, _ = load_policy(policy_folder, torch.float32)
    loss = 0.0
    for trajectory in trajectories:
        group = [t.trajectory_return for t in trajectories if t.group_id == trajectory.group_id]
        advantage = trajectory.trajectory_return - sum(group) / len(group)
        for segment in trajectory.segments:
            logprobs = model(torch.from_numpy(segment.token_ids)[None]).logits[0].log_softmax(-1)
            for position in segment.response_mask.nonzero()[0]:
                term = -advantage * logprobs[position - 1, segment.token_ids[position]]
                loss = loss + term / (len(trajectories) * trajectory.num_response_tokens)
    loss.backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    actual = initial_gradient(loaded(GRPO, policy_folder), trajectories, context)
    assert actual.dtype == torch.float32
    assert torch.allclose(actual, expected, atol=1e-6, rtol=1e-4)
    assert actual.norm() > 1e-3


@pytest.fixture(scope="module")
def other_folder(tmp_path_factory) -> str:
    """Another reference policy: same architecture, different weights."""
    folder = tmp_path_factory.mktemp("other")
    tokenizer = make_tokenizer()
    sizes = TinyPolicy(hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=24, seed=4)
    make_model(sizes, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("estimator", "placement", "acts"),
    [("k1", "loss", False), ("k1", "reward", True), ("k3", "loss", True), ("k3", "reward", True)],
)
def test_kl_gradient_reference_dependence(
    policy_folder, other_folder, make_trajectories, context, estimator, placement, acts
) -> None:
    """d(log pi - log pi_ref) = d(log pi): with k1 in the loss, the gradient does not depend on the reference."""
    config = change(GRPO, kl_coefficient=0.5, kl_estimator=estimator, kl_placement=placement)
    one, other = (
        initial_gradient(loaded(config, policy_folder, reference), make_trajectories(4), context)
        for reference in (policy_folder, other_folder)
    )
    assert torch.equal(one, other) != acts


@pytest.mark.ci
@pytest.mark.parametrize("config", [GRPO, PPO], ids=["grpo", "ppo"])
def test_measuring_gradient_leaves_update_unchanged(
    policy_folder, make_trajectories, context, config, tmp_path
) -> None:
    trajectories = make_trajectories(6)
    plain, other = loaded(config, policy_folder), loaded(config, policy_folder)
    first = initial_gradient(other, trajectories, context)
    assert torch.equal(first, initial_gradient(other, trajectories, context))
    results = [learner.update(trajectories, context) for learner in (plain, other)]
    assert results[0].metrics == results[1].metrics
    assert results[0].samples.equals(results[1].samples)
    assert digest(plain, tmp_path / "plain") == digest(other, tmp_path / "asked")


@pytest.mark.ci
def test_gradient_ignores_clip_includes_entropy_bonus(policy_folder, make_trajectories, context) -> None:
    trajectories = make_trajectories(6)
    plain = initial_gradient(loaded(GRPO, policy_folder), trajectories, context)
    clipped = initial_gradient(
        loaded(change(GRPO, clip_low=0.01, clip_high=0.01), policy_folder), trajectories, context
    )
    assert torch.equal(plain, clipped)
    rewarded = change(GRPO, entropy_coefficient=0.1)
    assert not torch.equal(plain, initial_gradient(loaded(rewarded, policy_folder), trajectories, context))


@pytest.mark.ci
@pytest.mark.parametrize("config", [GRPO, PPO], ids=["grpo", "ppo"])
def test_group_and_term_gradients_add_up(
    policy_folder, other_folder, make_trajectories, context, config, tmp_path
) -> None:
    """With all groups in one bucket; a term's own gradient is what the whole one gains by it."""
    trajectories = make_trajectories(10)
    groups = list(dict.fromkeys(trajectory.group_id for trajectory in trajectories))
    assert len(groups) == 3
    config = change(config, kl_coefficient=0.3, kl_estimator="k3", entropy_coefficient=0.2)
    learner = loaded(config, policy_folder, other_folder)
    (spreads,) = gradient_spreads(learner, trajectories, context, [groups])
    assert list(spreads) == ["task", "kl", "entropy"]
    without_it = torch.zeros(())
    for term, left_out in (("task", ["kl", "entropy"]), ("kl", ["entropy"]), ("entropy", [])):
        term_config = change(config, **{f"{other}_coefficient": 0.0 for other in left_out})
        with_it = initial_gradient(loaded(term_config, policy_folder, other_folder), trajectories, context)
        assert spreads[term].norm == pytest.approx(float((with_it - without_it).norm()), rel=1e-3)
        without_it = with_it
    plain = loaded(config, policy_folder, other_folder)
    assert digest(plain, tmp_path / "plain") == digest(learner, tmp_path / "asked")


def test_groups_without_responses_are_left_out(policy_folder, make_trajectories, context) -> None:
    spoken, silent = make_trajectories(4), dataclasses.replace(make_trajectories(5)[4], segments=())
    learner = loaded(GRPO, policy_folder)
    both, nobody = gradient_spreads(learner, [*spoken, silent], context, [["g0", "g1"], ["g1"]])
    assert (both["task"].num, nobody["task"].num) == (1, 0)
    assert both["task"].norm == pytest.approx(
        float(initial_gradient(learner, [*spoken, silent], context).norm()), rel=1e-5
    )
