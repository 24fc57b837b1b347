"""Breakdown of a run's time from its manifests, by hand."""

from pathlib import Path

import pytest

from starpo.ragen.evidence.reading import Place
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.times import seconds_between, stage_seconds, times_of
from starpo.ragen.store import Store
from starpo.schemas.manifest import Manifest, Stage


def manifest(end_s: int, seconds: float, **timings: float) -> Manifest:
    """Manifest of work that ended `end_s` seconds after noon."""
    provenance = {"seconds": seconds, "written_at": f"2026-11-24T12:00:{end_s:02d}.000+00:00", "timings": timings}
    facts = {"kind": "turns", "key": "k", "stage": Stage(name="s", version=1), "settings": {}, "inputs": {}}
    facts |= {"seed": None, "dataset_version": None, "num_rows": None, "files": ()}
    return Manifest(**facts, content_digest="0" * 64, provenance=provenance)


def place(iteration: int, stage: str, key: str = "") -> Place:
    return Place(iteration, stage, "metrics", key or f"{stage}-{iteration}")


@pytest.mark.ci
def test_stage_seconds_from_manifests(stored_run: Store) -> None:
    seconds = stage_seconds(gather(stored_run, "hostile").manifests)
    assert seconds["rollout"] == {0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0}
    assert seconds["evaluate:sokoban"][4] == 1.0
    assert seconds["warm_start"] == {0: 9.0}


@pytest.mark.ci
def test_reused_work_counted_once(damaged_run: Store) -> None:
    first = damaged_run.runs.iteration("hostile", 0)["rollout"]
    damaged_run.runs.record_stage("hostile", 1, "rollout", first)  # as Online-k does
    assert list(stage_seconds(gather(damaged_run, "hostile").manifests)["rollout"]) == [0, 2, 3]


def test_idle_time_lies_between_stages() -> None:
    # 10 (end of iteration 0) .. 11 nothing, 11 .. 14 rollout, 14 .. 16 nothing, 16 .. 20 update
    manifests = {
        place(0, "update"): manifest(10, 4.0),
        place(1, "rollout"): manifest(14, 3.0),
        place(1, "update"): manifest(20, 4.0),
    }
    assert seconds_between(manifests) == {1: pytest.approx(3.0)}


def test_parallel_stages_leave_little_idle_time() -> None:
    # the rollout, 12 .. 18, runs concurrently with the update, 11 .. 20, and ends before it: 1 s is left
    manifests = {
        place(0, "update"): manifest(10, 4.0),
        place(1, "rollout"): manifest(18, 6.0),
        place(1, "update"): manifest(20, 9.0),
    }
    assert seconds_between(manifests) == {1: pytest.approx(1.0)}


def test_earlier_iterations_work_not_counted() -> None:
    again = manifest(8, 2.0)
    manifests = {
        place(0, "rollout", "same"): again,
        place(0, "update"): manifest(10, 2.0),
        place(1, "rollout", "same"): again,
        place(1, "update"): manifest(15, 4.0),
    }
    assert seconds_between(manifests) == {1: pytest.approx(1.0)}


def test_unreadable_manifest_is_left_out(damaged_run: Store) -> None:
    turns = damaged_run.runs.iteration("hostile", 1)["rollout"]["turns"]
    Path(damaged_run.url, "turns", turns, "manifest.json").write_text("{")
    times = {row["stage"]: row["times"] for row in times_of(damaged_run, "hostile")}
    assert (times["rollout"], times["reward"]) == (3, 4)
