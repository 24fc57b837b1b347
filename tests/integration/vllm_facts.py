"""Measurements of the vLLM engine, written as JSON. Run by test_vllm.py in vLLM's own environment.

python vllm_facts.py POLICY OTHER_POLICY RESULT
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import starpo.ragen.agents.rollout.vllm.weights as vllm_weights
from starpo.ragen.agents.policy.load import load_policy, load_tokenizer
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.shards import make_episodes
from starpo.ragen.agents.rollout.torch.sampling import _nucleus
from starpo.ragen.agents.rollout.vllm.engine import VLLMEngine
from starpo.ragen.agents.rollout.vllm.probe import Probe, ProbeReference
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings

VOCABULARY = 400


def answer(session, requests):
    """Submit requests and wait for all responses."""
    session.submit(requests)
    responses = {}
    while len(responses) < len(requests):
        responses.update(session.finished())
    return [responses[request.sequence_id] for request in requests]


def prompts(count, length=40, first_seed=0):
    rng = np.random.default_rng(7)
    return [
        Request(f"s{n}", rng.integers(10, VOCABULARY, length).tolist(), np.zeros(0), first_seed + n)
        for n in range(count)
    ]


def worst_gap(folder, requests, responses, temperature, top_p):
    model, _ = load_policy(folder)
    worst = 0.0
    for request, response in zip(requests, responses, strict=True):
        tokens = torch.tensor(response.token_ids)
        ids = torch.tensor([*request.prompt_ids, *response.token_ids])
        with torch.inference_mode():
            logits = model(input_ids=ids[None]).logits[0, len(request.prompt_ids) - 1 : -1]
        probs = torch.softmax(logits / (temperature or 1.0), -1)
        probs = _nucleus(probs, top_p) if top_p < 1 else probs
        logprobs = (probs / probs.sum(-1, keepdim=True)).gather(-1, tokens[:, None])[:, 0].log()
        worst = max(worst, (logprobs - torch.tensor(response.logprobs)).abs().max().item())
    return worst


class Traced:
    """Session that records at which call of `finished` each turn began and ended."""

    def __init__(self, session):
        self.session, self.trace, self.turns, self.calls = session, [], {}, 0

    def submit(self, requests):
        for request in requests:
            self.turns[request.sequence_id] = turn = self.turns.get(request.sequence_id, -1) + 1
            self.trace.append((self.calls, turn, "begin"))
        self.session.submit(requests)

    def finished(self):
        self.calls += 1
        ended = self.session.finished()
        self.trace += [(self.calls, self.turns[name], "end") for name, _ in ended]
        return ended

    def usage(self):
        return self.session.usage()

    def close(self):
        self.session.close()


def refusal(engine, folder, key):
    try:
        engine.load(folder, key)
    except EngineError as error:
        return str(error)
    return ""


def damaged_copy(folder, scratch):
    """Copy the policy with one of its weight matrices changed."""
    shutil.copytree(folder, scratch)
    file = Path(scratch) / "model.safetensors"
    weights = load_file(file)
    weights["model.layers.0.mlp.down_proj.weight"] += 0.5
    save_file(weights, file, {"format": "pt"})


def adapters(folder, scratch):
    """Create two checkpoints with adapters on the same weights, in PEFT's layout."""
    folders = []
    weights = load_file(Path(folder) / "model.safetensors")
    generator = torch.Generator().manual_seed(3)
    for number in range(2):
        place = Path(scratch) / f"adapter{number}"
        shutil.copytree(folder, place)
        tensors = {}
        for name, weight in weights.items():
            if name.endswith(("q_proj.weight", "down_proj.weight")):
                stem = f"base_model.model.{name.removesuffix('.weight')}"
                rows, columns = weight.shape
                tensors[f"{stem}.lora_A.weight"] = 0.2 * torch.randn(4, columns, generator=generator)
                tensors[f"{stem}.lora_B.weight"] = 0.2 * torch.randn(rows, 4, generator=generator)
        save_file(tensors, place / "adapter_model.safetensors", {"format": "pt"})
        config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"]}
        (place / "adapter_config.json").write_text(json.dumps({**config, "bias": "none", "lora_dropout": 0.0}))
        (place / "base.json").write_text(json.dumps({"checkpoint": "base"}))
        folders.append(str(place))
    return folders


def main(policy, other, result):
    scratch = tempfile.mkdtemp(prefix="vllm-facts-")
    facts = {"gaps": {}}
    engine = VLLMEngine(num_threads=1, max_context_tokens=512, max_num_batched_tokens=600, kv_cache_gib=0.25)
    engine.load(policy, "k0")
    facts["probe_gap"] = engine.probe_gap
    for name, temperature, top_p in [
        ("temperature 1", 1.0, 1.0),
        ("temperature 0.7", 0.7, 1.0),
        ("temperature 0", 0.0, 1.0),
        ("top_p 0.6", 1.3, 0.6),
    ]:
        session = engine.session(SamplingConfig(temperature=temperature, top_p=top_p, max_response_tokens=16), [2])
        requests = prompts(8)
        facts["gaps"][name] = worst_gap(policy, requests, answer(session, requests), temperature, top_p)
        session.close()

    session = engine.session(SamplingConfig(max_response_tokens=8), [2])
    tokens = [[r.token_ids for r in answer(session, prompts(4, first_seed=seed))] for seed in (0, 0, 100)]
    facts["same_seeds_same_tokens"], facts["other_seeds_other_tokens"] = tokens[0] == tokens[1], tokens[0] != tokens[2]
    facts["num_long_prompts_answered"] = len(answer(session, prompts(12, length=300)))
    session.close()

    agent, sampling = AgentConfig(prompt="state"), SamplingConfig(max_response_tokens=24)
    tokenizer = load_tokenizer(policy)
    contexts = ContextBuilder(tokenizer, agent, sampling.max_response_tokens)
    stops = [*contexts.stop_token_ids, *range(0, VOCABULARY, 9)]  # so that responses have many lengths
    traced = Traced(engine.session(sampling, stops))
    (episodes,) = make_episodes([(f"g{n}", n) for n in range(4)], 4, 4)
    play(traced, contexts, tokenizer, FrozenLakeSettings(), agent, sampling, 512, episodes)
    facts["trace"] = traced.trace
    traced.close()

    engine.load(other, "k1")
    facts["probe_gap_after_update"], facts["update_s"] = engine.probe_gap, engine.update_s
    tie, vllm_weights.tie_output_layer = vllm_weights.tie_output_layer, lambda model: None
    facts["untied"] = refusal(engine, policy, "k2")
    vllm_weights.tie_output_layer = tie
    engine.load(policy, "k2")
    facts["gap_after_repair"] = engine.probe_gap

    damaged_copy(policy, f"{scratch}/damaged")
    read, vllm_weights.read_weights = vllm_weights.read_weights, lambda folder, **_: read(f"{scratch}/damaged")
    facts["damaged"] = refusal(engine, other, "k3")
    vllm_weights.read_weights = read

    model = make_model(TinyPolicy(hidden_size=64, num_layers=1), tokenizer)  # head size 16, which vLLM lacks on the CPU
    model.save_pretrained(f"{scratch}/odd")
    tokenizer.save_pretrained(f"{scratch}/odd")
    facts["unsupported"] = refusal(engine, f"{scratch}/odd", "k4")
    engine.load(policy, "k5")
    facts["gap_after_unsupported"] = engine.probe_gap

    first, second = adapters(policy, scratch)
    engine.load(first, "a0")
    base, adapted = (ProbeReference().logprobs(folder, Probe.of(folder, 511)) for folder in (policy, first))
    effect = max(abs(ours - theirs) for ours, theirs in zip(base, adapted, strict=True))
    facts["adapter"] = {"effect": effect, "merged_gap": engine.probe_gap, "served_gaps": []}
    engine._stop()
    served = VLLMEngine(num_threads=1, max_context_tokens=512, kv_cache_gib=0.25, max_lora_rank=4)
    served.load(policy, "base")
    for number, folder in enumerate((first, second)):
        served.load(folder, f"a{number}")
        facts["adapter"]["served_gaps"].append(served.probe_gap)
        facts["adapter"]["update_s"] = served.update_s
    Path(result).write_text(json.dumps(facts))
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main(*sys.argv[1:])
