"""Replay of reward and filter over 200 iterations of the default run; target: under 60 seconds.

    pytest -m benchmark tests/benchmarks/test_replay.py -s

Two iterations of the default run are played. The 200 that are replayed use these two rollouts alternately, each stored
again under its own key: as many rows and bytes to verify, validate, reward and filter as in 200 played iterations, but
only two distinct contents. The time is that of the whole flow: every stage is a Prefect task on a real server, with its
artifact, its record and the comparison.
"""

import time

import pytest

from starpo.flows.presets import preset
from starpo.flows.replay import replay
from starpo.flows.starpo import starpo
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from starpo.tasks.reward import reward
from starpo.tasks.variance_filter import variance_filter

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800), pytest.mark.usefixtures("prefect_server")]
ITERATIONS = 200
PLAYED = 2
ROLLOUT = Stage(name="rollout", version=1)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory, prefect_server: None) -> tuple[Store, int]:
    """Store with the run 'long' of 200 iterations and the rollout of one more; and the number of turns of the 200."""
    store = Store(str(tmp_path_factory.mktemp("store")))
    config = preset("sokoban", {"evaluation.num_prompts": 1, "evaluation.variants": {}})
    played = starpo(config, preset="sokoban", store=store.url, overrides={"iterations": PLAYED})
    records = store.runs.iterations(played)
    tables = [store.read_table("turns", records[i]["rollout"]["turns"]) for i in range(PLAYED)]
    store.runs.create("long", flow="starpo", preset="sokoban", config=config.model_dump(mode="json"))
    store.runs.record_stage("long", 0, "warm_start", records[0]["warm_start"])
    num_turns = 0
    for iteration in range(ITERATIONS + 1):
        table, settings = tables[iteration % PLAYED], {"artificial": iteration}
        key = stage_key(ROLLOUT, settings, {}, None)
        store.put_table("turns", table, Facts(key=key, stage=ROLLOUT, settings=settings, inputs={}, seed=None))
        store.runs.record_stage("long", iteration, "rollout", {"turns": key})
        if iteration < ITERATIONS:
            num_turns += table.num_rows
            rewards = reward(config.reward, key).carry_out(store)
            selection = variance_filter(config.filter, key, **rewards).carry_out(store)
            store.runs.record_stage("long", iteration, "reward", rewards)
            store.runs.record_stage("long", iteration, "variance_filter", selection)
    return store, num_turns


def test_reward_and_filter_of_200_iterations(long_run: tuple[Store, int], monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a new process, in which replays run.
    monkeypatch.setattr("starpo.ragen.store.artifacts.reading._VERIFIED", set())
    store, num_turns = long_run
    changes = {"reward.format_penalty": -0.25, "filter.keep": 0.75}
    seconds = {}
    for what in ("changed settings", "the same again, all stored"):
        started, busy = time.perf_counter(), time.process_time()
        run = replay("long", overrides=changes, should_update=False, store=store.url)
        seconds[what] = time.perf_counter() - started, time.process_time() - busy
    assert len(store.runs.iterations(run)) == ITERATIONS
    for what, (wall, busy) in seconds.items():
        print(
            f"reward and filter of {ITERATIONS} iterations, {num_turns} turns, {what}: {wall:.1f} s, "
            f"{busy:.1f} s of a core"
        )
