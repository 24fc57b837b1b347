"""Rollout and update of an iteration against TRL's GRPOTrainer: same model, rooms, trajectories and optimiser steps.

pip install trl==1.16.0
pytest -m benchmark tests/benchmarks/test_trl.py -s

TRL plays with `generate` of `transformers`, as its users do on a CPU, through the same environments and parser. All
contexts are full, since a sample of TRL is one sequence. Neither side stores anything; both use all cores. The learning
rate is too small to change the policy, so every round does the same work; rounds alternate. The throughput of both
updates is also given as a share of that of the machine's matrix products.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.imitation import imitate
from starpo.ragen.learning.learners.data.trajectories import Trajectory, assemble
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.reward.compute import compute_rewards
from tests.benchmarks.generate_session import GenerateSession

trl = pytest.importorskip("trl", reason="pip install trl==1.16.0")

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
ROUNDS, STEPS = 5, 3
CORES = len(os.sched_getaffinity(0))
CONFIG = preset(
    "sokoban",
    {
        "agent.context": "full",
        "rollout.num_groups": 24,
        "rollout.shard_groups": 12,
        "rollout.max_context_tokens": 1024,
        "policy.warm_start_steps": 550,
        "filter.strategy": "none",
        "filter.should_drop_zero_variance": False,
        "update.entropy_coefficient": 0.0,
        "update.num_minibatches": STEPS,
        "update.optimiser.type": "adamw",
        "update.optimiser.learning_rate": 1e-8,
        "update.optimiser.decay": "constant",
    },
)
SAMPLING, GROUP_SIZE = CONFIG.rollout.sampling, CONFIG.rollout.group_size
GROUPS = [(f"g{group:02d}", derive_seed("benchmark", group)) for group in range(CONFIG.rollout.num_groups)]
NUM_TRAJECTORIES = len(GROUPS) * GROUP_SIZE


def test_five_times_as_fast_as_trl(tmp_path: Path) -> None:
    folder = str(tmp_path / "policy")
    imitate(CONFIG.policy, CONFIG.environment, CONFIG.agent, SAMPLING.max_response_tokens, frozenset(), folder)
    ours, eighth = Ours(folder), Ours(folder, scored_share=1 / 8)

    def iterate() -> None:
        ours.iterate()
        eighth.iterate()

    theirs = Theirs(folder, tmp_path, between=iterate)
    iterate()
    theirs.train()
    for name, side in (("ours", ours), ("ours, an eighth scored", eighth), ("TRL", theirs)):
        rollout, update = (statistics.median(times) for times in zip(*side.seconds[-ROUNDS:], strict=True))
        print(
            f"{name}: rollout {rollout:.2f} s, update {update:.2f} s, {rollout + update:.2f} s an iteration; "
            f"{side.num_tokens / update:,.0f} trained tokens/s; "
            f"{side.update_flops(ours.num_parameters) / update / gemm_flops():.0%} of this machine's fp32 GEMM"
        )
    for name, side in (("all scored", ours), ("an eighth scored", eighth)):
        pairs = zip(side.seconds[-ROUNDS:], theirs.seconds, strict=True)
        ratios = sorted(sum(their) / sum(our) for our, their in pairs)
        ratio = statistics.median(ratios)
        print(
            f"{NUM_TRAJECTORIES} trajectories, {name}: {ratio:.1f} times as fast ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        )
    assert ratio >= 5


class Ours:
    """Workers and learner of the default run, without Prefect and store."""

    def __init__(self, folder: str, scored_share: float = 1.0) -> None:
        self.seconds: list[tuple[float, float]] = []
        self.num_tokens = 0
        self._folder = folder
        self._workers = WorkerPool("torch", CORES)
        self._scored_share = scored_share
        config = CONFIG.update.model_copy(update={"scored_share": scored_share})
        self._learner = TorchLearner(config, num_threads=CORES)
        self._learner.load(folder, "first", folder)
        self._job = RolloutJob(
            folder, "first", CONFIG.environment, CONFIG.agent, SAMPLING, CONFIG.rollout.max_context_tokens
        )
        self.num_parameters = sum(p.numel() for p in load_policy(folder)[0].parameters())

    def iterate(self) -> None:
        """Play and update once."""
        started = time.perf_counter()
        shards = make_episodes(GROUPS, GROUP_SIZE, CONFIG.rollout.shard_groups, batch=len(self.seconds))
        trajectories = trajectories_of(play_shards(self._workers, self._job, shards))
        played = time.perf_counter()
        context = UpdateContext(0, 1, 0, SAMPLING.temperature, SAMPLING.max_response_tokens)
        self._learner.update(trajectories, context)
        self.seconds.append((played - started, time.perf_counter() - played))
        self.num_tokens = sum(len(segment.token_ids) for trajectory in trajectories for segment in trajectory.segments)

    def update_flops(self, num_parameters: int) -> float:
        """Return the FLOPs of an update without sharing; see the function of this module."""
        return update_flops(self.num_tokens, num_parameters, self._scored_share)


class Theirs:
    """GRPOTrainer with a custom rollout function."""

    def __init__(self, folder: str, scratch: Path, between: Callable[[], None]) -> None:
        self.seconds: list[tuple[float, float]] = []
        self.num_tokens = 0
        self._between, self._started, self._played = between, 0.0, 0.0
        model, tokenizer = load_policy(folder)
        self._tokenizer = tokenizer
        self._contexts = ContextBuilder(tokenizer, CONFIG.agent, SAMPLING.max_response_tokens)
        per_step = NUM_TRAJECTORIES // STEPS
        args = trl.GRPOConfig(
            output_dir=str(scratch / "trl"),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=per_step // 4,
            gradient_accumulation_steps=4,
            generation_batch_size=NUM_TRAJECTORIES,
            num_generations=GROUP_SIZE,
            max_completion_length=CONFIG.rollout.max_context_tokens,
            max_steps=STEPS * (ROUNDS + 1),
            learning_rate=1e-8,
            lr_scheduler_type="constant",
            beta=CONFIG.update.kl_coefficient,
            epsilon=CONFIG.update.clip_low,
            epsilon_high=CONFIG.update.clip_high,
            scale_rewards="batch",
            temperature=SAMPLING.temperature,
            shuffle_dataset=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        datasets = pytest.importorskip("datasets")
        self._trainer = trl.GRPOTrainer(
            model=model,
            args=args,
            processing_class=tokenizer,
            reward_funcs=lambda completions, returns, **_: returns,
            train_dataset=datasets.Dataset.from_dict({"prompt": [group_id for group_id, _ in GROUPS]}),
            rollout_func=self._rollout,
        )

    def train(self) -> None:
        """Run all rounds, after one that is not counted."""
        torch.set_num_threads(CORES)
        self._trainer.train()
        self._note()
        self.seconds = self.seconds[1:]

    def update_flops(self, num_parameters: int) -> float:
        """Return the FLOPs of an update without sharing; see the function of this module."""
        return update_flops(self.num_tokens, num_parameters)

    def _note(self) -> None:
        if self._started:
            self.seconds.append((self._played - self._started, time.perf_counter() - self._played))

    def _rollout(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Play all trajectories. Called at the start of every iteration, with a group's name once per trajectory."""
        assert sorted(prompts) == sorted(group_id for group_id, _ in GROUPS for _ in range(GROUP_SIZE))
        self._note()
        if self._started:
            self._between()
        self._started = time.perf_counter()
        (episodes,) = make_episodes(GROUPS, GROUP_SIZE, len(GROUPS), batch=len(self.seconds))
        model = trainer.accelerator.unwrap_model(trainer.model)
        session = GenerateSession(model, self._contexts.stop_token_ids, SAMPLING)
        environment, agent, limit = CONFIG.environment, CONFIG.agent, CONFIG.rollout.max_context_tokens
        turns = play(session, self._contexts, self._tokenizer, environment, agent, SAMPLING, limit, episodes)
        by_group: dict[str, list[Trajectory]] = {group_id: [] for group_id, _ in GROUPS}
        for trajectory in trajectories_of(turns):
            by_group[trajectory.group_id].append(trajectory)
        played = [by_group[prompt].pop() for prompt in prompts]
        whole = [trajectory.segments[0] for trajectory in played]
        starts = [int(segment.response_mask.argmax()) for segment in whole]
        self.num_tokens = sum(len(segment.token_ids) for segment in whole)
        self._played = time.perf_counter()
        return {
            "prompt_ids": [s.token_ids[:start].tolist() for s, start in zip(whole, starts, strict=True)],
            "completion_ids": [s.token_ids[start:].tolist() for s, start in zip(whole, starts, strict=True)],
            "logprobs": [s.behaviour_logprobs[start:].tolist() for s, start in zip(whole, starts, strict=True)],
            "env_mask": [s.response_mask[start:].astype(int).tolist() for s, start in zip(whole, starts, strict=True)],
            "returns": [trajectory.trajectory_return for trajectory in played],
        }


def trajectories_of(turns: pa.Table) -> list[Trajectory]:
    """Reward and assemble the trajectories, without a filter."""
    rewards = compute_rewards(turns, CONFIG.reward)
    return assemble(turns, rewards, select_groups(turns, rewards, CONFIG.filter))


def update_flops(num_tokens: int, num_parameters: int, scored_share: float = 1.0) -> float:
    """FLOPs of an update without sharing: forward for old and for reference log-probs, forward and backward to train.

    Of the old log-probs only a share may be computed.

    Per token and parameter, a forward pass takes 2 and a backward pass 4 (Kaplan et al. 2020). Attention, and passes
    that only one side makes, are left out, so that both are measured against the same work.
    """
    return num_tokens * num_parameters * (2 * scored_share + 2 + 6)


def gemm_flops(size: int = 2048, repeats: int = 5) -> float:
    """Median fp32 operations per second in square matrix products on all cores."""
    torch.set_num_threads(CORES)
    a, b = torch.randn(size, size), torch.randn(size, size)
    speeds = []
    for _ in range(repeats):
        started = time.perf_counter()
        a @ b
        speeds.append(2 * size**3 / (time.perf_counter() - started))
    return float(np.median(speeds))
