"""Fine-tuning a pretrained policy: turns a second with rows that share prefixes, on two threads or a GPU, against a
plain trainer, which computes every turn with its whole prompt, four at a time.

STARPO_MODEL=folder pytest -m benchmark tests/benchmarks/test_fine_tuning.py -s
"""

import os
import statistics
import time

import numpy as np
import pytest
import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.device import Device
from starpo.ragen.config.policy import FineTuning
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.demonstrations import demonstrate_turns
from starpo.ragen.learning.examples import Batch, Example
from starpo.ragen.learning.learners.data.batches import MicroBatch, rectangles
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.optimisers import ModelOptimiser
from starpo.ragen.learning.learners.models.scoring import ResponseScores, row_tokens
from starpo.ragen.learning.learners.models.trained_model import TorchModel
from starpo.ragen.learning.learners.supervised import NUM_PARTS, Split, accumulate_gradient, in_prefix_rows

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
ROUNDS = int(os.environ.get("ROUNDS", "3"))
DEVICE = Device.here() if os.environ.get("DEVICE") == "cuda" else Device()
ENVIRONMENTS = {
    "bandit": (BanditSettings(), AgentConfig(prompt="full", max_turns=1, max_actions=1, max_actions_per_turn=1)),
    "sokoban, short": (
        SokobanSettings(generator="distance", min_solution=1, max_solution=5),
        AgentConfig(prompt="full"),
    ),
    "sokoban": (SokobanSettings(generator="distance", min_solution=6, max_solution=10), AgentConfig(prompt="full")),
}


@pytest.fixture(scope="module")
def policy():
    folder = os.environ.get("STARPO_MODEL")
    if not folder:
        pytest.skip("needs the folder of a model in STARPO_MODEL")
    model, tokenizer = load_policy(folder, torch.float32)
    model.to(DEVICE.kind)
    optimiser = ModelOptimiser(model, OptimiserConfig(learning_rate=1e-9))
    return TorchModel(ResponseScores(model), optimiser), tokenizer, row_tokens(model)


def turns_of(example: Example) -> list[Example]:
    """Split an example into its turns, each with the whole context before its response."""
    steps = np.diff(example.response_mask.astype(int), append=0)
    starts, ends = np.flatnonzero(steps == 1) + 1, np.flatnonzero(steps == -1) + 1
    turns = []
    for start, end in zip(starts, ends, strict=True):
        mask = np.zeros(end, dtype=bool)
        mask[start:] = True
        turns.append(Example(example.token_ids[:end], mask))
    return turns


@pytest.mark.parametrize("batch_size", [16, 32])
@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_fine_tuning_step_computes_prefixes_once(policy, name: str, batch_size: int) -> None:
    trained, tokenizer, max_row_tokens = policy
    environment, agent = ENVIRONMENTS[name]
    played = demonstrate_turns(FineTuning(), environment, agent, 200, frozenset(), tokenizer, 4 * batch_size)
    order = np.random.default_rng(0).permutation(len(played.examples))
    examples: list[Example] = []
    for index in order:
        if sum(len(turns_of(example)) for example in examples) < batch_size:
            examples.append(played.examples[index])
    turns = [turn for example in examples for turn in turns_of(example)]

    def in_fours(batch: Batch) -> list[MicroBatch]:
        return rectangles(batch, range(len(batch.segments)), -(-len(batch.segments) // 4))

    def seconds(batch: Batch, split: Split, dtype: str) -> tuple[float, float, float]:
        runner = MicroBatchRunner(DEVICE, NUM_PARTS, dtype)
        started, started_cpu = time.perf_counter(), time.process_time()
        loss, _ = accumulate_gradient(trained, batch, split(batch), runner)
        with runner.alone(NUM_PARTS):
            trained.step(1.0)
        return time.perf_counter() - started, time.process_time() - started_cpu, loss

    shared = in_prefix_rows(8192, max_row_tokens, 1 if DEVICE.is_gpu else NUM_PARTS)
    ways = {
        "plain": (Batch(turns), in_fours, "float32"),
        "shared": (Batch(examples), shared, "float32"),
        "shared, bfloat16": (Batch(examples), shared, "bfloat16"),
    }
    measured: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    seconds(Batch(examples[:2]), shared, "float32")
    for _ in range(ROUNDS):
        for way, arguments in ways.items():
            measured[way].append(seconds(*arguments))
    losses = {way: rounds[0][2] for way, rounds in measured.items()}
    assert losses["shared"] == pytest.approx(losses["plain"], rel=1e-4)
    assert losses["shared, bfloat16"] == pytest.approx(losses["plain"], rel=5e-2)
    print(f"\n{name}: {len(turns)} turns of {len(examples)} contexts; {NUM_PARTS} threads, {DEVICE.kind}")
    for way, rounds in measured.items():
        ratios, cpu_ratios = (
            [plain[i] / ours[i] for plain, ours in zip(measured["plain"], rounds, strict=True)] for i in (0, 1)
        )
        print(
            f"  {way}: {len(turns) / statistics.median(s for s, _, _ in rounds):.2f} turns/s, "
            f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f}), by seconds of CPU "
            f"{statistics.median(cpu_ratios):.2f}; loss {losses[way]:.5f}"
        )
