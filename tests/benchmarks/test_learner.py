"""How fast an update is: side by side with a plain full-logits loop, by threads, and the cost of assembling.

Run with `-m benchmark -s`. Times are medians; the CPU time of one thread is what is compared, so that other work on the
machine does not matter.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.policy.tiny import make_model, make_tokenizer
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.update import OptimiserConfig, UpdateConfig
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.learners.trajectories import Segment, Trajectory, assemble
from starpo.schemas.datasets import REWARDS, SELECTION, TURNS

pytestmark = pytest.mark.benchmark

NUM_TRAJECTORIES, NUM_TURNS, PROMPT, RESPONSE = 200, 2, 24, 17
CONTEXT = UpdateContext(iteration=0, num_iterations=20, seed=0, temperature=1.0, max_response_tokens=32)
CONFIG = UpdateConfig(
    advantage="grpo",
    advantage_scale="batch",
    aggregation="token_mean",
    num_minibatches=3,
    micro_batch_tokens=2048,
    optimiser=OptimiserConfig(type="muon", learning_rate=3e-4),
)


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = make_tokenizer()
    make_model(TinyPolicy(), tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def trajectories() -> list[Trajectory]:
    rng = np.random.default_rng(0)

    def segment(turn: int) -> Segment:
        length = PROMPT + RESPONSE + int(rng.integers(-4, 5))
        mask = np.arange(length) >= PROMPT
        logprobs = np.where(mask, -5.5, 0).astype(np.float32)
        return Segment(rng.integers(0, 300, length), mask, logprobs, np.where(mask, turn, -1))

    made = []
    for index in range(NUM_TRAJECTORIES):
        rewards = rng.normal(size=NUM_TURNS)
        segments = tuple(segment(turn) for turn in range(NUM_TURNS))
        total = float(rewards.sum())
        made.append(Trajectory(f"t{index}", f"g{index // 16}", segments, rewards, total, total))
    return made


def median_cpu_s(*functions: Callable[[], object], rounds: int = 5) -> list[float]:
    """CPU seconds of each, taken in turns so that all see the same machine; the first round is not counted."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds + 1):
        for taken, function in zip(times, functions, strict=True):
            start = time.process_time()
            function()
            taken.append(time.process_time() - start)
    return [statistics.median(taken[1:]) for taken in times]


def naive_pass(model, optimiser, trajectories: list[Trajectory], batch_size: int = 64) -> None:
    """Forward and backward over every segment as a plain loop does it: in order, padded, masked, all logits."""
    segments = [(s, t.trajectory_return) for t in trajectories for s in t.segments]
    for start in range(0, len(segments), batch_size):
        chosen = segments[start : start + batch_size]
        width = max(len(s.token_ids) for s, _ in chosen)
        token_ids = torch.zeros((len(chosen), width), dtype=torch.int64)
        attention, response = torch.zeros_like(token_ids), torch.zeros_like(token_ids, dtype=torch.float32)
        for row, (segment, _) in enumerate(chosen):
            token_ids[row, : len(segment.token_ids)] = torch.from_numpy(segment.token_ids)
            attention[row, : len(segment.token_ids)] = 1
            response[row, : len(segment.token_ids)] = torch.from_numpy(segment.response_mask).float()
        logits = model(input_ids=token_ids, attention_mask=attention, use_cache=False).logits
        logprobs = torch.log_softmax(logits[:, :-1], -1).gather(2, token_ids[:, 1:, None])[..., 0]
        returns = torch.tensor([r for _, r in chosen], dtype=torch.float32)[:, None]
        (-(logprobs * returns * response[:, 1:]).sum() / 1e4).backward()
    optimiser.step()
    optimiser.zero_grad()


def test_training_passes_beat_a_plain_loop(policy_folder, trajectories):
    torch.set_num_threads(1)
    learner = TorchLearner(CONFIG, num_threads=1)
    learner.load(policy_folder, "start", None)
    model, _ = load_policy(policy_folder)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    shares: list[float] = []

    def update() -> None:
        timings = learner.update(trajectories, CONTEXT).timings
        shares.append(timings["train_s"] / (timings["score_s"] + timings["train_s"] + timings["review_s"]))

    ours, naive = median_cpu_s(update, lambda: naive_pass(model, optimiser, trajectories))
    num_tokens = sum(len(s.token_ids) for t in trajectories for s in t.segments)
    training = ours * statistics.median(shares)
    print(
        f"\n{num_tokens} tokens, CPU seconds of one thread: training passes {training:.2f} "
        f"({num_tokens / training:.0f} tokens/s), whole update {ours:.2f}; plain loop {naive:.2f} "
        f"({num_tokens / naive:.0f} tokens/s); "
        f"ratio {naive / training:.2f}"
    )
    assert training < naive


@pytest.mark.parametrize("budget", [1024, 2048, 4096, 8192, 32768])
def test_update_by_micro_batch_size(policy_folder, trajectories, budget):
    learner = TorchLearner(CONFIG.model_copy(update={"micro_batch_tokens": budget}), num_threads=1)
    learner.load(policy_folder, "start", None)
    (cpu_s,) = median_cpu_s(lambda: learner.update(trajectories, CONTEXT), rounds=3)
    print(f"\nmicro_batch_tokens {budget}: {cpu_s:.2f} CPU s an update")


def test_update_by_threads(policy_folder, trajectories):
    learners = {count: TorchLearner(CONFIG, num_threads=count) for count in (1, 2)}
    walls: dict[int, list[float]] = {count: [] for count in learners}
    for learner in learners.values():
        learner.load(policy_folder, "start", None)
    for _ in range(6):
        for count, learner in learners.items():
            start = time.perf_counter()
            learner.update(trajectories, CONTEXT)
            walls[count].append(time.perf_counter() - start)
    one, two = (statistics.median(taken[1:]) for taken in walls.values())
    print(f"\nwall seconds an update, by load: one thread {one:.2f}, two {two:.2f}; {one / two:.2f} times")


def test_assembling_650_turns_takes_a_few_milliseconds():
    rng = np.random.default_rng(0)
    rows = [(f"g{i // 32}", f"g{i // 32}-{i}", turn) for i in range(325) for turn in range(2)]
    blank = {f.name: pa.nulls(len(rows), f.type) for f in TURNS.schema}
    blank |= {
        "trajectory_id": pa.array([r[1] for r in rows]),
        "group_id": pa.array([r[0] for r in rows]),
        "turn": pa.array([r[2] for r in rows], pa.int32()),
        "is_context_start": pa.array([True] * len(rows)),
        "prompt_ids": pa.array([rng.integers(0, 300, PROMPT) for _ in rows], TURNS.schema.field("prompt_ids").type),
        "response_ids": pa.array(
            [rng.integers(0, 300, RESPONSE) for _ in rows], TURNS.schema.field("response_ids").type
        ),
        "behaviour_logprobs": pa.array(
            [-rng.random(RESPONSE) for _ in rows], TURNS.schema.field("behaviour_logprobs").type
        ),
    }
    turns = pa.table(blank)
    zeros = pa.array(np.zeros(len(rows)))
    rewards = pa.table(
        {f.name: pa.nulls(len(rows), f.type) for f in REWARDS.schema}
        | {name: turns[name] for name in ("trajectory_id", "group_id", "turn")}
        | dict.fromkeys(("total", "trajectory_return", "normalised_return"), zeros)
        | {"is_valid": pa.array([True] * len(rows))}
    )
    groups = sorted({r[0] for r in rows})
    selection = pa.table(
        {f.name: pa.nulls(len(groups), f.type) for f in SELECTION.schema}
        | {"group_id": pa.array(groups), "kept": pa.array([True] * len(groups))}
    )
    (cpu_s,) = median_cpu_s(lambda: assemble(turns, rewards, selection), rounds=20)
    print(f"\nassemble: {1000 * cpu_s:.1f} ms for {len(rows)} turns")
    assert cpu_s < 0.05
