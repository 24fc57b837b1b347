"""What Prefect and the store add to an iteration of the default run: the same stages bare, side by side.

    pytest -m benchmark tests/benchmarks/test_overhead.py -s

Bare means: the same library calls in one process, tables handed over in memory, no task, no validation, no Parquet, no
manifest, no wandb. The new weights go from the learner to the engine through a folder in both.
"""

import itertools
import statistics
import time
from pathlib import Path

import pytest

from flows.presets import preset
from flows.record import RunRecorder
from flows.starpo import starpo
from ragen.config.runtime import Runtime
from ragen.config.starpo import StarPOConfig
from ragen.seeding import derive_seed
from ragen.store import Store

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800), pytest.mark.usefixtures("prefect_server")]
ITERATIONS = 12


def bare_seconds(config: StarPOConfig, store: Store, checkpoint: str, folder: Path) -> list[float]:
    """Seconds of each iteration without Prefect and store."""
    from ragen.diagnostics.metrics import filter_metrics, reward_metrics, rollout_metrics
    from ragen.envs.initial_states import fresh_env_seed
    from ragen.evaluate.panel import make_panel
    from ragen.filter.select import select_groups
    from ragen.learn.learner import UpdateContext
    from ragen.learn.torch_learner import TorchLearner
    from ragen.learn.trajectories import assemble
    from ragen.reward.compute import compute_rewards
    from ragen.rollout.job import RolloutJob
    from ragen.rollout.shards import make_episodes, play_shards
    from ragen.rollout.worker_pool import WorkerPool

    threads, rollout = Runtime().threads, config.rollout
    first = store.local_folder("checkpoint", checkpoint)
    workers, learner = WorkerPool("torch", threads), TorchLearner(config.update, num_threads=threads)
    policy = (first, checkpoint)
    learner.load(first, checkpoint, first)
    excluded = make_panel(
        config.environment, config.evaluation.num_prompts, config.evaluation.panel_seed
    ).excluded_digests
    seconds = []
    for iteration in range(ITERATIONS):
        started = time.perf_counter()
        groups = [
            (
                f"g{group:04d}",
                fresh_env_seed(config.environment, config.seed, "environment", iteration, group, excluded=excluded),
            )
            for group in range(rollout.num_groups)
        ]
        shards = make_episodes(groups, rollout.group_size, rollout.shard_groups)
        job = RolloutJob(*policy, config.environment, config.agent, rollout.sampling, rollout.max_context_tokens)
        turns = play_shards(workers, job, shards)
        rewards = compute_rewards(turns, config.reward)
        selection = select_groups(turns, rewards, config.filter)
        rollout_metrics(turns), reward_metrics(rewards, turns), filter_metrics(selection)
        context = UpdateContext(
            iteration, config.iterations, derive_seed(config.seed, "update", iteration),
            rollout.temperature, rollout.max_response_tokens,
        )  # fmt: skip
        learner.update(assemble(turns, rewards, selection), context)
        weights = folder / str(iteration)
        weights.mkdir()
        policy = (str(weights), f"bare-{iteration}")
        learner.save(*policy)
        seconds.append(time.perf_counter() - started)
    return seconds


def test_prefect_and_store_cost_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGEN_WANDB_MODE", "offline")
    monkeypatch.setenv("RAGEN_STATE_DIR", str(tmp_path / "state"))
    overrides = {"iterations": ITERATIONS, "evaluation.every": 1000, "evaluation.variants": {}}
    config = preset("sokoban", overrides)
    ends: list[float] = []
    note = RunRecorder.iteration_done

    def timed(self: RunRecorder, iteration: int) -> None:
        note(self, iteration)
        ends.append(time.perf_counter())

    monkeypatch.setattr(RunRecorder, "iteration_done", timed)
    run = starpo(config, preset="sokoban", store=str(tmp_path / "store"))
    piped = [later - earlier for earlier, later in itertools.pairwise(ends)]
    store = Store(str(tmp_path / "store"))
    checkpoint = store.runs.iterations(run)[0]["warm_start"]["checkpoint"]
    bare = bare_seconds(config, store, checkpoint, tmp_path)[1:]
    # Iterations have different amounts of work, the same in both, so they are compared one by one.
    shares = [(slow - fast) / slow for slow, fast in zip(piped, bare, strict=True)]
    print(
        f"iteration: {statistics.median(piped):.2f} s in the pipeline, {statistics.median(bare):.2f} s bare; "
        f"Prefect and store: median {statistics.median(shares):.1%} of an iteration"
    )
