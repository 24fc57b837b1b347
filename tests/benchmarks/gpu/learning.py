"""The torch learner and fine-tuning: speed, memory, bytes."""

import gc
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from transformers import AutoConfig

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.config.policy import FineTuning
from starpo.ragen.config.update import OptimiserConfig, UpdateConfig
from starpo.ragen.learning.demonstrations import demonstrate_turns
from starpo.ragen.learning.imitation import fine_tune
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory
from starpo.ragen.learning.learners.learner import UpdateContext, UpdateResult
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from tests.benchmarks.gpu.report import Report
from tests.benchmarks.gpu.setup import Setup

SETTINGS = Path(__file__).with_name("sokoban.toml")
GROUP_SIZE, NUM_TURNS, PROMPT_TOKENS, NEXT_TOKENS, RESPONSE_TOKENS = 8, 4, 250, 80, 48
CONTEXT = UpdateContext(0, 10, seed=5, temperature=1.0, max_response_tokens=RESPONSE_TOKENS)
REPEATS = 2


def measure(report: Report, setup: Setup, repeats: int = REPEATS) -> None:
    """Measure; with one repetition, only what should repeat."""
    vocabulary = AutoConfig.from_pretrained(setup.model).vocab_size
    trajectories = [trajectory(index, vocabulary) for index in range(setup.num_trajectories)]
    num_tokens = sum(len(one.segments[0].token_ids) for one in trajectories)
    for dtype, budget in setup.updates:
        name = f"update, {dtype}, micro-batches of {budget:,} tokens"
        for number in range(repeats):
            seconds, result = updated(report, name, setup, dtype, budget, trajectories)
            gc.collect()
            if number:  # the first is not counted
                report.add(name, round(num_tokens / seconds), "tokens/s")
                for what, value in {"all_s": seconds, **result.timings}.items():
                    if not what.endswith("_per_s"):
                        report.add(f"{name}: {what.removesuffix('_s')}", round(value, 2), "s")
                report.add_peak_memory(name)
    for dtype in ("float32", "bfloat16"):
        name = f"fine-tuning, {dtype}"
        speeds = [tuned(report, name, setup, dtype) for _ in range(repeats)]
        if repeats > 1:
            report.add(name, round(speeds[-1], 1), "examples/s")
            report.add_peak_memory(name)


def updated(
    report: Report, name: str, setup: Setup, dtype: str, budget: int, trajectories: list[Trajectory]
) -> tuple[float, UpdateResult]:
    """Update once, with GRPO in two steps; return its seconds and its result."""
    config = UpdateConfig(
        advantage="grpo",
        advantage_scale="batch",
        num_minibatches=2,
        dtype=dtype,
        micro_batch_tokens=budget,
        aggregation="token_mean",
        optimiser=OptimiserConfig(learning_rate=1e-5),
    )
    learner = TorchLearner(config)
    learner.load(setup.model, "start", None)
    started = time.perf_counter()
    result = learner.update(trajectories, CONTEXT)
    seconds = time.perf_counter() - started
    with tempfile.TemporaryDirectory(dir=setup.out) as folder:
        learner.save(folder, "end")
        report.add_bytes(name, weights_in(folder))
    return seconds, result


def tuned(report: Report, name: str, setup: Setup, dtype: str) -> float:
    """Fine-tune for some steps as the run does; return examples a second, without the first step."""
    config = preset(str(SETTINGS), {"policy.name_or_path": setup.model, **dict(setup.run)})
    changed = {"steps": setup.tuning_steps, "batch_size": setup.tuning_batch, "dtype": dtype}
    tuning = FineTuning(**config.policy.fine_tuning.model_dump() | changed)
    ended: list[float] = []
    demonstrations = demonstrate_turns(
        tuning,
        config.environment,
        config.agent,
        config.rollout.max_response_tokens,
        frozenset(),
        load_tokenizer(setup.model),
        setup.tuning_batch * setup.tuning_steps,
    )
    with tempfile.TemporaryDirectory(dir=setup.out) as folder:
        fine_tune(
            config.policy.model_copy(update={"fine_tuning": tuning}),
            demonstrations,
            folder,
            on_progress=lambda _done, _total: ended.append(time.perf_counter()),
        )
        report.add_bytes(name, weights_in(folder))
    return setup.tuning_batch / statistics.median(np.diff(ended))


def trajectory(index: int, vocabulary: int) -> Trajectory:
    """Return four turns of random tokens; members of a group share the first prompt."""
    generator, shared = np.random.default_rng(index), np.random.default_rng([index // GROUP_SIZE, 0])
    tokens, turns = [], []
    for turn in range(NUM_TURNS):
        prompt = (
            generator.integers(vocabulary, size=NEXT_TOKENS)
            if turn
            else shared.integers(vocabulary, size=PROMPT_TOKENS)
        )
        tokens += [*prompt, *generator.integers(vocabulary, size=RESPONSE_TOKENS)]
        turns += [-1] * len(prompt) + [turn] * RESPONSE_TOKENS
    turn_T = np.array(turns)
    mask_T = turn_T >= 0
    logprobs_T = np.where(mask_T, -8.0, 0.0).astype(np.float32)
    segment = Segment(np.array(tokens), mask_T, logprobs_T, turn_T, mask_T.astype(np.int8))
    rewards, ones = generator.normal(size=NUM_TURNS), np.ones(NUM_TURNS)
    total, states = float(rewards.sum()), np.arange(NUM_TURNS)
    return Trajectory(f"t{index}", f"g{index // GROUP_SIZE}", (segment,), rewards, total, total, states, ones, ones)


def weights_in(folder: str) -> Iterator[bytes]:
    """Yield the bytes of all weights and moments in a folder."""
    for path in sorted(Path(folder).rglob("*.safetensors")):
        yield path.read_bytes()
