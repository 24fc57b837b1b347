"""The torch engine: speed, memory, bytes, and the gap of its log-probs; `generate` of transformers beside it."""

import gc
import statistics
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import RolloutSession
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.shards import make_episodes
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from tests.benchmarks.generate_session import GenerateSession
from tests.benchmarks.gpu.report import Report
from tests.benchmarks.gpu.setup import Setup

MAX_CONTEXT_TOKENS = 2048
ROOMS = {"observation": "grid", "generator": "distance", "min_solution": 2, "max_solution": 6}
DTYPES = ("float32", "bfloat16")
REPEATS = 3
NUM_COMPARED = 200
"""Turns over which the gap is measured."""


def agent_of(setup: Setup) -> dict[str, object]:
    """Return the agent's settings: rules in full, all earlier turns in the context."""
    return {"prompt": "full", "context": "full", "max_turns": setup.max_turns}


class Player:
    """Plays the same episodes again and again."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.model, self._tokenizer = load_policy(setup.model)
        self._agent = AgentConfig(**agent_of(setup))
        self.sampling = SamplingConfig(max_response_tokens=setup.max_response_tokens)
        self._contexts = ContextBuilder(self._tokenizer, self._agent, setup.max_response_tokens)
        self.stop_token_ids = self._contexts.stop_token_ids

    def play(self, session: RolloutSession) -> tuple[pa.Table, float]:
        """Play all episodes once; return their turns, and response tokens a second."""
        groups = [(f"g{group}", derive_seed("benchmark", group)) for group in range(self._setup.num_groups)]
        (episodes,) = make_episodes(groups, self._setup.group_size, self._setup.num_groups)
        started = time.perf_counter()
        settings = SokobanSettings(**ROOMS), self._agent, self.sampling, MAX_CONTEXT_TOKENS
        turns = play(session, self._contexts, self._tokenizer, *settings, episodes)
        return turns, num_tokens(turns) / (time.perf_counter() - started)


def measure(report: Report, setup: Setup, repeats: int = REPEATS) -> None:
    """Measure; with one repetition, only what should repeat."""
    player, played = Player(setup), {}
    for dtype in DTYPES:
        name = f"engine torch, {dtype}"
        engine = TorchEngine(dtype=dtype)
        engine.load(setup.model, dtype)
        speeds = []
        for _ in range(repeats):
            played[dtype], speed = player.play(engine.session(player.sampling, player.stop_token_ids))
            speeds.append(speed)
            report.add_bytes(name, bytes_of(played[dtype]))
        del engine
        gc.collect()
        if repeats > 1:
            report.add(name, round(statistics.median(speeds)), "response tokens/s")
            report.add_peak_memory(name)
    if repeats == 1:
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = player.model.to(device)
    for dtype, turns in played.items():
        report.add(f"gap of engine torch, {dtype}, to transformers in float32", gap(turns, model), "nats")
    baseline = GenerateSession(model.to(torch.bfloat16), player.stop_token_ids, player.sampling)
    report.add("generate of transformers, bfloat16", round(player.play(baseline)[1]), "response tokens/s")


def num_tokens(turns: pa.Table) -> int:
    """Count response tokens."""
    return sum(map(len, turns["response_ids"].to_pylist()))


def bytes_of(turns: pa.Table) -> Iterator[bytes]:
    """Yield the tokens and log-probs of all responses."""
    for ids, logprobs in zip(turns["response_ids"].to_pylist(), turns["behaviour_logprobs"].to_pylist(), strict=True):
        yield np.array(ids, dtype=np.int64).tobytes() + np.array(logprobs, dtype=np.float32).tobytes()


@torch.inference_mode()
def gap(turns: pa.Table, model: torch.nn.Module) -> str:
    """Describe the difference of the engine's log-probs to those of a model, over the sampled tokens."""
    gaps, context = [], []
    for row in turns.slice(0, NUM_COMPARED).to_pylist():
        context = row["prompt_ids"] if row["is_context_start"] else context + row["prompt_ids"]
        ids = torch.tensor([context + row["response_ids"]], device=model.device)
        logits = model(input_ids=ids).logits[0, len(context) - 1 : -1].double()
        expected = logits.log_softmax(-1).gather(1, ids[0, len(context) :, None])[:, 0].cpu().numpy()
        gaps.append(np.abs(expected - np.array(row["behaviour_logprobs"])))
        context = context + row["response_ids"]
    each = np.concatenate(gaps)
    return f"mean {each.mean():.2g}, p95 {np.quantile(each, 0.95):.2g}, max {each.max():.2g}"
