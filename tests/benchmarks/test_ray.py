"""Speed-up from parallel rollout actors, and from a rollout parallel to an update, where cores are free."""

import os
import statistics
import time
from importlib.util import find_spec
from itertools import pairwise

import psutil
import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.config.ray_runtime import RayRuntime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.seeding import derive_seed

pytestmark = [
    pytest.mark.usefixtures("ray_shut_down"),
    pytest.mark.benchmark,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (pip install 'starpo[ray]')"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
]

REPEATS = 7
SIZES = {"rollout.num_groups": 24, "rollout.shard_groups": 6}
CORES = sorted(os.sched_getaffinity(0))[:2]


@pytest.fixture(scope="module")
def config() -> StarPOConfig:
    """Settings with half of the default run's groups: 24 groups of 16, in four shards."""
    return preset("sokoban", SIZES)


@pytest.fixture(scope="module")
def job(config, tmp_path_factory):
    """Rollout job of a policy that has learnt the format, so that responses end properly."""
    from starpo.ragen.learning.imitation import imitate

    folder = tmp_path_factory.mktemp("policy")
    imitate(config.policy, config.environment, config.agent, config.rollout.max_response_tokens, frozenset(), folder)
    sampling, limit = config.rollout.sampling, config.rollout.max_context_tokens
    return RolloutJob(str(folder), "warm-start", config.environment, config.agent, sampling, limit)


@pytest.fixture(scope="module")
def shards(config):
    groups = [(f"g{number}", derive_seed("benchmark", number)) for number in range(config.rollout.num_groups)]
    return make_episodes(groups, config.rollout.group_size, config.rollout.shard_groups)


def pin(pid, core):
    """Pin all threads of a process to a core; threads that they start inherit this."""
    for thread in psutil.Process(pid).threads():
        os.sched_setaffinity(thread.id, {core})


def actors():
    """Return the process ids of this process's rollout actors."""
    family = psutil.Process().children(recursive=True)
    return {child.pid for child in family if "ShardActor" in " ".join(child.cmdline())}


def seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def test_two_actors_against_one_pinned(job, shards):
    from starpo.ragen.agents.rollout.pools.ray_pool import RayPool

    pools, turns = {}, {}
    for cores in (CORES[:1], CORES):
        before = actors()
        pool = pools[len(cores)] = RayPool(EngineSpec("torch"), RayRuntime(actors=len(cores), actor_cpus=0.1), 2)
        turns[len(cores)] = play_shards(pool, job, shards)  # starts the actors
        for pid, core in zip(sorted(actors() - before), cores, strict=True):
            pin(pid, core)
    assert turns[1].equals(turns[2])
    num_tokens = sum(len(ids) for ids in turns[1]["response_ids"].to_pylist())
    taken = {number: [] for number in pools}
    for _ in range(REPEATS):
        for number, pool in pools.items():
            taken[number].append(seconds(lambda pool=pool: play_shards(pool, job, shards)))
    ratios = sorted(one / two for one, two in zip(taken[1], taken[2], strict=True))
    one_s, two_s = statistics.median(taken[1]), statistics.median(taken[2])
    print(
        f"\n{turns[1].num_rows} turns, {num_tokens} response tokens, {len(shards)} shards; "
        f"load {os.getloadavg()[0]:.1f}\n"
        f"  one actor on one core: {one_s:.2f} s, {num_tokens / one_s:,.0f} tokens/s\n"
        f"  two actors on a core each: {two_s:.2f} s, {num_tokens / two_s:,.0f} tokens/s\n"
        f"  ratio {statistics.median(ratios):.2f} (of {', '.join(f'{ratio:.2f}' for ratio in ratios)})"
    )
    assert statistics.median(ratios) >= 1.6


def test_iteration_ahead_costs_its_longer_part(tmp_path, monkeypatch):
    """Two actors run on one core and the update on the other, so that each has its own resources, as on a cluster.

    On shared cores nothing can overlap: an iteration then takes as long as rollout and update together.
    """
    from prefect.testing.utilities import prefect_test_harness

    from starpo.flows.starpo import starpo
    from starpo.ragen.store import Store
    from starpo.tasks import rollout as rollout_stage
    from starpo.tasks.loop import record

    monkeypatch.setenv("STARPO_POOL", "ray")
    monkeypatch.setenv("STARPO_RAY_ACTORS", "2")
    monkeypatch.setenv("STARPO_RAY_ACTOR_CPUS", "0.1")
    monkeypatch.setenv("STARPO_THREADS", "1")
    play, ends = rollout_stage._play, []

    def play_apart(*args):
        yield from play(*args)
        for pid in actors():
            pin(pid, CORES[0])

    def note_the_end(recorder, iteration, *args):
        ends.append(time.monotonic())
        done(recorder, iteration, *args)

    done = record.RunRecorder.iteration_done
    monkeypatch.setattr(rollout_stage, "_play", play_apart)
    monkeypatch.setattr(record.RunRecorder, "iteration_done", note_the_end)
    sizes = {**SIZES, "iterations": 12, "evaluation.every": 100, "update.importance_cap": 2.0}
    store, medians = Store(str(tmp_path)), {}
    try:
        with prefect_test_harness(server_startup_timeout=120):
            os.sched_setaffinity(0, {CORES[1]})  # the server may use any core
            for staleness in (0, 1):
                ends.clear()
                run = starpo(preset("sokoban", {**sizes, "rollout.staleness": staleness}), store=store.url)
                iterations_s = [after - before for before, after in pairwise(ends[2:])]
                records = list(store.runs.iterations(run).values())[3:-1]
                stage_s = {
                    kind: statistics.median(
                        store.manifest(kind, stages[stage][kind]).provenance["seconds"] for stages in records
                    )
                    for stage, kind in (("rollout", "turns"), ("update", "checkpoint"))
                }
                medians[staleness] = statistics.median(iterations_s), stage_s["turns"], stage_s["checkpoint"]
    finally:
        os.sched_setaffinity(0, set(CORES))
    (together_s, rollout_s, update_s), (ahead_s, *beside) = medians[0], medians[1]
    print(
        f"\nload {os.getloadavg()[0]:.1f}; medians\n"
        f"  staleness 0: rollout {rollout_s:.2f} s, update {update_s:.2f} s, iteration {together_s:.2f} s\n"
        f"  staleness 1: rollout {beside[0]:.2f} s, update {beside[1]:.2f} s, iteration {ahead_s:.2f} s, "
        f"{ahead_s / max(rollout_s, update_s):.2f} times the longer of the two apart"
    )
    assert ahead_s <= 1.15 * max(rollout_s, update_s)
