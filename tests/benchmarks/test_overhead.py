"""Overhead of Prefect and the store per iteration of the default run, against a bare loop over the same stages.

    GLIBC_TUNABLES=$(python -m starpo.ragen.core.allocator) pytest -m benchmark tests/benchmarks/test_overhead.py -s

The setting before the command is the one that a deployment's run has. The bare loop makes the same library calls in
one process: tables stay in memory; there are no tasks, no validation, no Parquet and no manifests. wandb, which belongs
to neither Prefect nor the store, is off in both. In both, new weights go from the learner to the engine through a
folder. Both use the same learner and workers, since the speed of two instances differs with the placement of their
memory. Four iterations of the run are followed by the same four in the bare loop, with the Prefect server stopped
(SIGSTOP), so that both find the machine in the same condition. The first of each four follows a pause and is ignored.
An iteration ends where a rollout ends. On a shared machine two iterations of the same code differ by more than the
overhead. The second figure is therefore the time of the run's iteration outside these library calls: it hardly varies,
but misses any slow-down of the calls by Prefect's threads. Target: 200 ms per iteration, whatever its length.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import psutil
import pyarrow as pa
import pytest

from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.initial_states import fresh_env_seed
from starpo.ragen.envs.sokoban.environment import _room
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.learners.data.trajectories import assemble
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.metrics.iteration import filter_metrics, reward_metrics, rollout_metrics
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.tasks.loop.record import RunRecorder

# method="thread": with an alarm set, Prefect enforces its time limits in extra threads, which real runs do not have.
pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800, method="thread")]
BLOCK = 4
ITERATIONS = 19 * BLOCK + 1
SETTLING_S = 2.0
"""Pause in seconds, in which the server finishes pending work, or catches up after it was stopped."""
LIBRARY = (
    "starpo.ragen.envs.initial_states.fresh_env_seed",
    "starpo.ragen.agents.rollout.shards.make_episodes",
    "starpo.ragen.agents.rollout.shards.play_shards",
    "starpo.tasks.reward.compute_rewards",
    "starpo.tasks.variance_filter.select_groups",
    "starpo.tasks.diagnose.rollout_metrics",
    "starpo.tasks.diagnose.reward_metrics",
    "starpo.tasks.diagnose.filter_metrics",
    "starpo.ragen.runs.update.assemble",
    "starpo.ragen.learning.learners.torch_learner.TorchLearner.update",
    "starpo.ragen.learning.learners.torch_learner.TorchLearner.save",
)
"""Library functions that both call, by the names under which the run finds them."""


class BareLoop:
    """The training loop without Prefect and store."""

    def __init__(self, config: StarPOConfig, first: str, folder: Path, placement: ModelPlacement) -> None:
        self.config, self.first, self.folder = config, first, folder
        self.policy = (first, "first")
        self.workers = placement.players.player(config.rollout, Runtime.current().threads)
        self.learner = placement.learner.of(config.update)
        panel = make_panel(config.environment, config.evaluation.num_prompts, config.evaluation.panel_seed)
        self.excluded = panel.excluded_digests
        self.turns = self.play(0)

    def play(self, iteration: int) -> pa.Table:
        config, rollout = self.config, self.config.rollout
        path = (config.environment, config.seed, "environment", iteration)
        groups = [(f"g{g:04d}", fresh_env_seed(*path, g, excluded=self.excluded)) for g in range(rollout.num_groups)]
        shards = make_episodes(groups, rollout.group_size, rollout.shard_groups)
        job = RolloutJob(*self.policy, config.environment, config.agent, rollout.sampling, rollout.max_context_tokens)
        return play_shards(self.workers, job, shards)

    def seconds_of(self, iteration: int) -> float:
        """Run an iteration; return its seconds, from the end of its rollout to the end of the next one."""
        _room.cache_clear()  # the run has already cached the rooms of the next rollout
        self.learner.load(*self.policy, self.first)
        started = time.perf_counter()
        config, rollout, turns = self.config, self.config.rollout, self.turns
        rewards = compute_rewards(turns, config.reward)
        selection = select_groups(turns, rewards, config.filter)
        rollout_metrics(turns), reward_metrics(rewards, turns), filter_metrics(selection)
        seed = derive_seed(config.seed, "update", iteration)
        context = UpdateContext(iteration, config.iterations, seed, rollout.temperature, rollout.max_response_tokens)
        self.learner.update(assemble(turns, rewards, selection), context)
        weights = self.folder / str(iteration)
        weights.mkdir()
        self.policy = (str(weights), f"bare-{iteration}")
        self.learner.save(*self.policy)
        self.turns = self.play(iteration + 1)
        return time.perf_counter() - started


def test_prefect_and_store_cost_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_server: list[psutil.Process]
) -> None:
    monkeypatch.setenv("STARPO_WANDB_MODE", "disabled")
    monkeypatch.setenv("STARPO_STATE_DIR", str(tmp_path / "state"))
    config = preset("sokoban", {"iterations": ITERATIONS, "evaluation.every": 1000, "evaluation.variants": {}})
    store = Store(str(tmp_path / "store"))
    piped: list[float] = []
    outside: list[float] = []
    bare: list[float] = []
    inside = 0.0

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def work(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            started = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                inside += time.perf_counter() - started

        return work

    for name in LIBRARY:
        monkeypatch.setattr(name, timed(resolve_name(name)))
    begun = 0.0
    training_begins, stage = RunRecorder.training_begins, RunRecorder.stage
    loops: list[BareLoop] = []

    def begin(self: RunRecorder) -> None:
        training_begins(self)
        first = store.runs.iteration(self.name, 0)["warm_start"]["checkpoint"]
        placement = self._execution.placement
        loops.append(BareLoop(config, store.local_folder("checkpoint", first), tmp_path, placement))

    def cut(self: RunRecorder, iteration: int, work: Work) -> Keys:
        """Separate iterations: before the stage `reward`, one ends and the next begins."""
        nonlocal begun, inside
        if work.name == "reward":
            if iteration > 0 and iteration % BLOCK != 1:  # the others follow a pause
                piped.append(time.perf_counter() - begun)
                outside.append(piped[-1] - inside)
            if iteration > 0 and iteration % BLOCK == 0:
                time.sleep(SETTLING_S)
                for process in prefect_server:
                    process.suspend()
                bare.extend([loops[0].seconds_of(number) for number in range(iteration - BLOCK, iteration)][1:])
                for process in prefect_server:
                    process.resume()
                time.sleep(SETTLING_S)  # the server catches up on missed timers
            begun, inside = time.perf_counter(), 0.0
        return stage(self, iteration, work)

    monkeypatch.setattr(RunRecorder, "training_begins", begin)
    monkeypatch.setattr(RunRecorder, "stage", cut)
    starpo(config, preset="sokoban", store=store.url)
    # In both, the first block includes starting worker processes and loading.
    slow, fast, outside = (values[BLOCK - 1 :] for values in (piped, bare, outside))
    costs = sorted(1e3 * (here - there) for here, there in zip(slow, fast, strict=True))
    print(
        f"iteration: {statistics.median(slow):.2f} s in the pipeline, {statistics.median(fast):.2f} s bare; "
        f"Prefect and store: median {statistics.median(costs):.0f} ms "
        f"(quartiles {costs[len(costs) // 4]:.0f}, {costs[3 * len(costs) // 4]:.0f}, {len(costs)} pairs), "
        f"{1 - sum(fast) / sum(slow):.1%} of all; outside of the library: median "
        f"{1e3 * statistics.median(outside):.0f} ms (of {1e3 * min(outside):.0f} to {1e3 * max(outside):.0f})"
    )
