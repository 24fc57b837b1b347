"""LoRA in the torch learner: only adapters are trained; they are stored in PEFT's layout, and all readers agree."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from transformers import AutoModelForCausalLM, GPT2Config, GPT2Model

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.agents.rollout.torch.fused_decoder import FusedDecoder
from starpo.ragen.agents.rollout.weights import read_weights
from starpo.ragen.config.device import Device
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.update import CriticConfig, LoraConfig, OptimiserConfig, UpdateConfig
from starpo.ragen.core.errors import LearnerError, PolicyError
from starpo.ragen.learning.learners.data.batches import micro_batches
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.adapters import adapters_off, shape_of
from starpo.ragen.learning.learners.models.checkpoint import load_checkpoint
from starpo.ragen.learning.learners.models.scoring import ResponseScores, score
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from tests.ragen.learning.learners.conftest import change

pytest.importorskip("peft", reason="peft is not installed (pip install 'starpo[lora]')")

FAST = OptimiserConfig(learning_rate=1e-2, max_gradient_norm=None)
LORA = LoraConfig(rank=4, alpha=8)
GRPO = UpdateConfig(advantage="grpo", num_minibatches=2, optimiser=FAST, lora=LORA)
PPO = UpdateConfig(num_minibatches=2, optimiser=FAST, critic=CriticConfig(optimiser=FAST), lora=LORA)


def complete(folder: Path, base: str) -> str:
    """Copy the base's weights beside the adapter, where `ragen.agents.policy.complete` links them."""
    shutil.copy(Path(base) / "model.safetensors", folder)
    return str(folder)


def trained(config: UpdateConfig, folder: str, trajectories, context, output: Path, num_updates: int = 1):
    learner = TorchLearner(config, num_threads=1)
    learner.load(folder, "base", folder)
    results = [learner.update(trajectories, dataclasses.replace(context, seed=i)) for i in range(num_updates)]
    learner.save(str(output), "end")
    return learner, results


def logprobs(model, trajectories) -> torch.Tensor:
    tokens = ResponseTokens(trajectories)
    batches = micro_batches(tokens, np.arange(len(tokens.segments)), 1000)
    return score(ResponseScores(model), batches, len(tokens), 1.0, MicroBatchRunner(Device(), 1, "float32")).logprobs_N


@pytest.mark.ci
@pytest.mark.parametrize("base", [GRPO, PPO], ids=["grpo", "ppo"])
def test_only_adapters_and_head_are_trained(policy_folder, make_trajectories, context, tmp_path, base):
    learner, _ = trained(base, policy_folder, make_trajectories(4), context, tmp_path / "c")
    policy, start = learner._loaded().policy, load_policy(policy_folder)[0]
    for name, weight in start.state_dict().items():
        mine = dict(policy.named_parameters())
        of_base = mine.get(name.replace(".weight", ".base_layer.weight"), mine.get(name))
        assert of_base is None or torch.equal(of_base, weight)
    stored = {name.split("/")[-1] for name in load_file(tmp_path / "c" / "optimiser.safetensors")}
    assert all(".lora_A." in name or ".lora_B." in name or name.startswith("head.") for name in stored)
    assert not (tmp_path / "c" / "model.safetensors").exists()
    if base is PPO:
        critic = load_file(tmp_path / "c" / "critic.safetensors")
        assert {"head.weight", "head.bias"} < critic.keys()
        assert all("lora_" in name or name.startswith("head.") for name in critic)


@pytest.mark.ci
def test_adapters_off_gives_the_reference(policy_folder, make_trajectories, context, tmp_path):
    config = change(GRPO, kl_coefficient=0.1)
    trajectories = make_trajectories(4)
    learner, results = trained(config, policy_folder, trajectories, context, tmp_path / "c", num_updates=2)
    full, whole = trained(change(config, lora=None), policy_folder, trajectories, context, tmp_path / "f")
    assert results[0].metrics["update/entropy"] == pytest.approx(whole[0].metrics["update/entropy"], abs=1e-6)
    assert learner._companions._frozen["reference"].model is None  # the policy itself: no second copy of the weights
    assert full._companions._frozen["reference"].model is not None
    policy = learner._loaded().policy
    plain = logprobs(load_policy(policy_folder)[0], trajectories)
    assert not torch.allclose(logprobs(policy, trajectories), plain, atol=1e-3)
    with adapters_off(policy):
        torch.testing.assert_close(logprobs(policy, trajectories), plain, atol=1e-6, rtol=0)
    assert all(p.requires_grad for name, p in policy.named_parameters() if "lora_" in name)


@pytest.mark.ci
def test_every_reader_computes_same_logprobs(policy_folder, make_trajectories, context, tmp_path):
    """Merged at load, as rollouts read it; by transformers, which adds the adapter; by PEFT, on the base."""
    from peft import PeftModel

    trajectories = make_trajectories(4)
    learner, _ = trained(GRPO, policy_folder, trajectories, context, tmp_path / "c", num_updates=3)
    expected = logprobs(learner._loaded().policy, trajectories)
    folder = complete(tmp_path / "c", policy_folder)
    merged, _ = load_policy(folder)
    assert not any("lora" in name for name, _ in merged.named_parameters())
    torch.testing.assert_close(logprobs(merged, trajectories), expected, atol=1e-5, rtol=0)
    weights = read_weights(folder)
    assert all(torch.equal(weights[name], p) for name, p in merged.named_parameters())
    by_transformers = AutoModelForCausalLM.from_pretrained(folder)
    torch.testing.assert_close(logprobs(by_transformers, trajectories), expected, atol=1e-5, rtol=0)
    by_peft = PeftModel.from_pretrained(load_policy(policy_folder)[0], folder).get_base_model()
    torch.testing.assert_close(logprobs(by_peft, trajectories), expected, atol=1e-5, rtol=0)


@pytest.mark.ci
@pytest.mark.parametrize("is_fused", [True, False])
def test_engine_plays_alike_after_restart(policy_folder, make_trajectories, context, tmp_path, monkeypatch, is_fused):
    """A process's first checkpoint is merged as later ones are: in float32, and rounded to bfloat16 once."""
    monkeypatch.setattr(FusedDecoder, "is_supported", lambda config: is_fused)
    for number in (1, 2):
        folder = tmp_path / str(number)
        trained(GRPO, policy_folder, make_trajectories(4), context, folder, num_updates=number)
        complete(folder, policy_folder)
    going_on, restarted = TorchEngine(1, dtype="bfloat16"), TorchEngine(1, dtype="bfloat16")
    going_on.load(str(tmp_path / "1"), "one")
    for engine in (going_on, restarted):
        engine.load(str(tmp_path / "2"), "two")
    sampling, uniforms = SamplingConfig(max_response_tokens=16), np.linspace(0.1, 0.9, 16)
    requests = [Request(f"s{n}", tuple(range(5, 15 + n)), uniforms, n) for n in range(4)]
    answers = [engine.session(sampling, [1]).generate(requests) for engine in (going_on, restarted)]
    assert [one.logprobs for one in answers[0]] == [one.logprobs for one in answers[1]]


@pytest.mark.ci
def test_transformers_ignores_adapter_beside_weights(policy_folder, make_trajectories, context, tmp_path, monkeypatch):
    """Its releases treat one differently: 5.19 rejects the option to skip it, others add it to the model."""
    trained(GRPO, policy_folder, make_trajectories(8), context, tmp_path / "a")
    folder, given = complete(tmp_path / "a", policy_folder), []
    read = AutoModelForCausalLM.from_pretrained

    def noted(path, **settings):
        given.append(({file.name for file in Path(path).iterdir()}, settings))
        return read(path, **settings)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", noted)
    model, _ = load_policy(folder)
    bare, _ = load_policy(folder, should_merge=False)
    for names, settings in given:
        assert "model.safetensors" in names
        assert "adapter_kwargs" not in settings
        assert not any(name.startswith("adapter_") for name in names)
    base = load_policy(policy_folder)[0].state_dict()
    assert all(torch.equal(weight, base[name]) for name, weight in bare.state_dict().items())
    assert not all(torch.equal(weight, base[name]) for name, weight in model.state_dict().items())


@pytest.mark.ci
@pytest.mark.parametrize("base", [GRPO, PPO], ids=["grpo", "ppo"])
def test_resumed_training_equals_uninterrupted(policy_folder, make_trajectories, context, tmp_path, base):
    config, trajectories = change(base, kl_coefficient=0.1), make_trajectories(4)
    learner, _ = trained(config, policy_folder, trajectories, context, tmp_path / "middle")
    expected = learner.update(trajectories, context)
    learner.save(str(tmp_path / "steady"), "end")
    resumed = TorchLearner(config, num_threads=1)
    resumed.load(complete(tmp_path / "middle", policy_folder), "middle", policy_folder)
    result = resumed.update(trajectories, context)
    assert result.metrics == pytest.approx(expected.metrics, rel=1e-6, abs=1e-7)  # the reference is a copy here
    resumed.save(str(tmp_path / "resumed"), "end")
    for file in (tmp_path / "steady").iterdir():
        if file.suffix == ".safetensors":
            steady, other = load_file(file), load_file(tmp_path / "resumed" / file.name)
            assert all(torch.allclose(other[name], tensor, atol=1e-6) for name, tensor in steady.items())
        else:
            assert (tmp_path / "resumed" / file.name).read_bytes() == file.read_bytes()
    assert json.loads((tmp_path / "resumed" / "base.json").read_text()) == {"checkpoint": "base"}


@pytest.mark.ci
def test_full_training_continues_from_adapters(policy_folder, make_trajectories, context, tmp_path):
    trajectories = make_trajectories(4)
    learner, _ = trained(PPO, policy_folder, trajectories, context, tmp_path / "c")
    expected = logprobs(learner._loaded().policy, trajectories)
    full = TorchLearner(change(PPO, lora=None), num_threads=1)
    full.load(complete(tmp_path / "c", policy_folder), "c", None)
    torch.testing.assert_close(logprobs(full._loaded().policy, trajectories), expected, atol=1e-5, rtol=0)
    metrics = full.update(trajectories, context).metrics
    assert metrics["update/num_restarted_optimisers"] == 2
    full.save(str(tmp_path / "full"), "full")
    assert (tmp_path / "full" / "model.safetensors").exists()
    names = load_checkpoint(str(tmp_path / "full")).companions["critic"].state_dict().keys()
    assert not any("lora" in name for name in names)


@pytest.mark.ci
def test_frozen_weights_are_shared_in_bfloat16(policy_folder, make_trajectories, context, tmp_path):
    learner, _ = trained(change(PPO, dtype="bfloat16"), policy_folder, make_trajectories(2), context, tmp_path / "c")
    checkpoint = learner._loaded()
    critic = checkpoint.companions["critic"]
    frozen = {id(p) for p in checkpoint.policy.parameters() if not p.requires_grad}
    assert {id(p) for p in critic.parameters() if not p.requires_grad} <= frozen
    assert {p.dtype for p in checkpoint.policy.parameters() if p.requires_grad} == {torch.float32}
    assert {p.dtype for p in checkpoint.policy.parameters() if not p.requires_grad} == {torch.bfloat16}
    assert {t.dtype for t in load_file(tmp_path / "c" / "adapter_model.safetensors").values()} == {torch.float32}


@pytest.mark.ci
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_activations_computed_again_change_no_number(policy_folder, make_trajectories, context, tmp_path, lora):
    config, trajectories = change(PPO, lora=lora), make_trajectories(4)
    _, kept = trained(config, policy_folder, trajectories, context, tmp_path / "kept")
    again = change(config, activation_checkpointing=True)
    _, recomputed = trained(again, policy_folder, trajectories, context, tmp_path / "again")
    assert recomputed[0].metrics == kept[0].metrics


def test_unknown_target_error_suggests_near_names(policy_folder):
    learner = TorchLearner(change(GRPO, lora=LoraConfig(targets=["q_pro"])), num_threads=1)
    with pytest.raises(LearnerError, match=r"no linear layers named 'q_pro'; did you mean 'q_proj'\? It has down_proj"):
        learner.load(policy_folder, "base", None)


def test_model_without_linear_layers_is_rejected():
    backbone = GPT2Model(GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1, n_positions=8))
    for targets in (None, ["c_attn"]):
        with pytest.raises(LearnerError, match=r"GPT2Model has no torch.nn.Linear layers.*leave lora out"):
            shape_of(LoraConfig(targets=targets), backbone)


@pytest.mark.ci
def test_mismatched_lora_settings_are_rejected(policy_folder, make_trajectories, context, tmp_path):
    trained(GRPO, policy_folder, make_trajectories(2), context, tmp_path / "c")
    other = TorchLearner(change(GRPO, lora=LoraConfig(rank=8, alpha=8)), num_threads=1)
    with pytest.raises(PolicyError, match=r"has rank 4, alpha 8 .* update.lora asks for rank 8, alpha 8"):
        other.load(complete(tmp_path / "c", policy_folder), "c", None)


def test_full_critic_with_lora_is_rejected(policy_folder, make_trajectories, context, tmp_path):
    trained(change(PPO, lora=None), policy_folder, make_trajectories(2), context, tmp_path / "full")
    learner = TorchLearner(PPO, num_threads=1)
    with pytest.raises(LearnerError, match="has a critic with full weights, which"):
        learner.load(str(tmp_path / "full"), "full", None)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("adapter_model.safetensors", b"cut", "the adapter .* cannot be read"),
        (
            "adapter_model.safetensors",
            save({"base_model.model.model.embed_tokens.lora_embedding_A": torch.zeros(4, 8)}),
            "holds .*lora_embedding_A, which matches no linear layer",
        ),
        ("adapter_config.json", b"{}", "is not the configuration of a LoRA adapter"),
        (
            "adapter_config.json",
            b'{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "use_dora": true}',
            r"is not a plain LoRA adapter \(use_dora\)",
        ),
        (
            "adapter_config.json",
            b'{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "lora_bias": true, '
            b'"alora_invocation_tokens": [1], "init_lora_weights": "pissa"}',
            r"is not a plain LoRA adapter \(lora_bias, alora_invocation_tokens, init_lora_weights\)",
        ),
    ],
)
def test_damaged_adapters_raise_policy_error(
    policy_folder, make_trajectories, context, tmp_path, file, content, message
):
    trained(GRPO, policy_folder, make_trajectories(2), context, tmp_path / "c")
    folder = complete(tmp_path / "c", policy_folder)
    (tmp_path / "c" / file).write_bytes(content)
    with pytest.raises(PolicyError, match=message):
        load_policy(folder)
