"""`rollout.staleness = 1` in the real flow: which policy plays, equal digests after a kill, plan, verify."""

import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.core.errors import EngineError
from starpo.ragen.evidence.audit.staleness import staleness
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.store import Store
from starpo.tasks.loop.record import RunRecorder
from starpo.tasks.loop.verify import verify_run
from tests.integration.forging import AFTER_START
from tests.integration.run_digests import digests

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

AHEAD = {"rollout.staleness": 1, "update.importance_cap": 2.0, "iterations": 3, "rollout.shard_groups": 2}


def train(folder: Path, **overrides: object) -> tuple[Store, str]:
    run = starpo(preset("smoke", {**AHEAD, **overrides}), preset="smoke", store=str(folder))
    return Store(str(folder)), run


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, prefect_server: None, begun: Callable[..., str]
) -> tuple[Store, str]:
    folder = tmp_path_factory.mktemp("store")
    begun(folder)
    return train(folder)


def test_later_rollouts_use_previous_checkpoint(finished: tuple[Store, str]) -> None:
    store, run = finished
    records = store.runs.iterations(run)
    before = [records[0]["warm_start"]["checkpoint"], *(records[i]["update"]["checkpoint"] for i in range(3))]
    played_by = [store.manifest("turns", records[i]["rollout"]["turns"]).inputs["checkpoint"] for i in range(3)]
    trained = [store.manifest("samples", records[i]["update"]["samples"]).inputs["checkpoint"] for i in range(3)]
    assert trained == before[:3]
    assert played_by == [before[0], before[0], before[1]]


def test_every_turn_records_staleness(finished: tuple[Store, str]) -> None:
    store, run = finished
    assert staleness(store, run) == {0: 0, 1: 1, 2: 1}
    with open_database(store, [run]) as database:
        rows = database.query("select distinct iteration, staleness from turns order by all").to_pylist()
    assert [(row["iteration"], row["staleness"]) for row in rows] == [(0, 0), (1, 1), (2, 1)]


def test_update_corrects_for_staleness(finished: tuple[Store, str]) -> None:
    """The policy's log-probs equal the sampling policy's on its own rollout, but not on the previous policy's."""
    store, run = finished
    gaps = []
    for stages in list(store.runs.iterations(run).values())[:3]:
        table = store.read_table("metrics", stages["update"]["metrics"])
        values = metric_values(table)
        gaps.append(values["update/old_behaviour_gap_max"])
    assert gaps[0] < 1e-4
    assert min(gaps[1:]) > 0.01


def test_stale_run_is_verified(finished: tuple[Store, str]) -> None:
    verification = verify_run(*finished, **AFTER_START)
    assert verification.is_faultless
    checked = [finding for finding in verification.findings if finding.stage == "rollout" and finding.check == "turns"]
    assert [str(finding.verdict) for finding in checked] == ["same"] * 3


@pytest.mark.parametrize("missing", ["turns", pytest.param("update", marks=pytest.mark.thorough)])
def test_lost_update_or_rollout_same_digests(finished: tuple[Store, str], tmp_path: Path, missing: str) -> None:
    """The store is as after a kill during an update and the next rollout, of which only one was stored."""
    original, run = finished
    shutil.copytree(original.url, tmp_path, dirs_exist_ok=True)
    records = original.runs.iterations(run)
    lost = {"turns": records[1]["rollout"], "update": records[0]["update"]}[missing]
    for iteration in (1, 2, 3):
        (tmp_path / "runs" / run / "iterations" / f"{iteration:05d}.json").unlink()
    for kind, key in lost.items():
        (tmp_path / kind / key / "manifest.json").unlink()
    store, again = train(tmp_path)
    assert again == run
    assert digests(store, run) == digests(original, run)


def test_failing_update_stops_parallel_rollout(
    tmp_path: Path, begun: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with the update's error, without waiting for the rollout, which here would never end."""
    from starpo.ragen.agents.rollout.pools import worker_pool
    from starpo.tasks import update as update_stage

    playing, stopped = threading.Event(), threading.Event()
    ahead: list[int] = []
    concurrently, play = RunRecorder.concurrently, worker_pool._Worker.play

    def hang(worker, job, episodes):
        if ahead and not playing.is_set():
            worker._process.send_signal(signal.SIGSTOP)
            playing.set()
        try:
            return play(worker, job, episodes)
        except worker_pool.WorkerLostError:
            stopped.set()
            raise

    def begin(record, iteration, *args, **kwargs):
        ahead.append(iteration)
        return concurrently(record, iteration, *args, **kwargs)

    def fail(*_: object) -> None:
        assert playing.wait(60)
        raise EngineError("the update failed")

    monkeypatch.setattr(RunRecorder, "concurrently", begin)
    monkeypatch.setattr(worker_pool._Worker, "play", hang)
    monkeypatch.setattr(update_stage, "_train", fail)
    begun(tmp_path)
    with pytest.raises(EngineError, match="the update failed"):
        train(tmp_path)
    assert stopped.wait(30)
