"""Which checkpoints are kept; no run drops one that another run has."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.store import Facts, Store
from starpo.ragen.store.keeping.checkpoints import checkpoint_keys, policies
from starpo.ragen.store.keeping.retention import Retention, kept_numbers, superseded
from starpo.schemas.manifest import Stage
from tests.examples import put_folder


def test_first_nth_and_newest_are_kept() -> None:
    assert kept_numbers(10, every=4) == [0, 4, 8, 10]
    assert kept_numbers(0, every=4) == [0]
    assert kept_numbers(3, every=1) == [0, 1, 2, 3]


def test_repeated_checkpoint_kept_by_any_number() -> None:
    keys = ["a", "b", "c", "c", "c", "d", "e"]  # iterations 2 and 3 made no update: c has the numbers 2, 3 and 4
    assert superseded(keys, every=4) == {"b": 1, "d": 5}
    assert superseded(keys, every=5) == {"b": 1, "c": 2}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 8))
def test_dropped_checkpoint_is_never_kept_later(steps: list[int], every: int) -> None:
    """A run drops checkpoints as it proceeds, and none that it would keep later has been dropped by then."""
    keys = [str(sum(step > 0 for step in steps[: i + 1])) for i in range(len(steps))]
    gone: set[str] = set()
    for number in range(1, len(keys) + 1):
        now = superseded(keys[:number], every)
        assert not gone & (set(keys[:number]) - set(now))
        assert keys[number - 1] not in now
        assert keys[0] not in now
        gone |= set(now)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Store with checkpoints c0 .. c6, all made by run 'mine'."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "weights").write_text("w")
    store = Store(str(tmp_path / "store"))
    for number in range(7):
        stage = Stage(name="update", version=1)
        facts = Facts(key=f"c{number}", stage=stage, settings={}, inputs={}, seed=0)
        put_folder(store, "checkpoint", str(tmp_path / "files"), facts)
    record(store, "mine", 6, checkpoint_every=3)
    return store


def record(store: Store, run: str, num_updates: int, prefix: str = "c", **config: Any) -> None:
    store.runs.create(run, flow="starpo", preset=None, config=config)
    store.runs.record_stage(run, 0, "warm_start", {"checkpoint": "c0"})
    for iteration in range(num_updates):
        store.runs.record_stage(run, iteration, "update", {"checkpoint": f"{prefix}{iteration + 1}"})


def kept(store: Store) -> list[int]:
    return [number for number in range(7) if store.has("checkpoint", f"c{number}")]


MINE = [f"c{number}" for number in range(7)]


def test_what_is_superseded_is_dropped_once(store: Store) -> None:
    retention = Retention(store, "mine", every=3)
    assert retention.apply(MINE[:3]) == ["c1"]
    assert retention.apply(MINE) == ["c2", "c4", "c5"]
    assert retention.apply(MINE) == []
    assert kept(store) == [0, 3, 6]


def test_a_replay_drops_its_own_alone(store: Store) -> None:
    """The replay starts from checkpoint 2 of 'mine', whose checkpoints 1 and 2 may have been restored."""
    assert Retention(store, "replay", every=3, start=2).apply([*MINE[:3], "c4", "c5"]) == []
    assert Retention(store, "replay", every=5, start=2).apply([*MINE[:3], "c4", "c5"]) == ["c4"]


def test_by_default_nothing_is_lost(store: Store, tmp_path: Path) -> None:
    stage = Stage(name="update", version=1)
    facts = Facts(key="gpu", stage=stage, settings={}, inputs={}, seed=0, is_deterministic=False)
    put_folder(store, "checkpoint", str(tmp_path / "files"), facts)
    line = ["c0", "c1", "gpu", "c3"]
    assert Retention(store, "mine", every=3, should_lose=False).apply(line) == ["c1"]
    assert Retention(store, "mine", every=3).apply(line) == ["gpu"]


def test_what_another_run_has_too_stays(store: Store) -> None:
    record(store, "ahead", 2)
    record(store, "parted", 6, prefix="d")
    record(store, "beginner", 0)
    retention = Retention(store, "mine", every=6)
    assert retention.apply(MINE[:6]) == ["c3", "c4"]
    record(store, "beginner", 5)
    assert retention.apply(MINE) == []
    assert kept(store) == [0, 1, 2, 5, 6]


def test_checkpoint_numbers_are_iterations() -> None:
    update = {"update": {"checkpoint": "b"}}
    records = {0: {"warm_start": {"checkpoint": "a"}, **update}, 1: {"rollout": {}}, 2: {"rollout": {}}}
    assert checkpoint_keys(records) == {0: "a", 1: "b", 2: "b"}  # iteration 2 is not finished
    assert checkpoint_keys({**records, 3: {"evaluate:x": {}}}) == {0: "a", 1: "b", 2: "b", 3: "b"}
    assert checkpoint_keys({}) == {}
    assert checkpoint_keys({5: update}) == {6: "b"}  # a branch that starts at checkpoint 5 of another run


def test_replay_checkpoints_begin_with_base(tmp_path):
    store = Store(str(tmp_path))
    records = {
        "base": {
            0: {"warm_start": {"checkpoint": "a"}, "update": {"samples": "b", "checkpoint": "b"}},
            1: {"update": {"checkpoint": "c"}},
        },
        "again": {1: {"update": {"samples": "d", "checkpoint": "d"}}},
        "lonely": {1: {"update": {"samples": "d", "checkpoint": "d"}}},
    }
    for name, iterations in records.items():
        flow = "starpo" if name == "base" else "replay"
        parameters = {"base": "base" if name == "again" else "gone", "start": 1, "stop": 2}
        store.runs.create(name, flow=flow, preset=None, config={}, parameters=parameters)
        for iteration, stages in iterations.items():
            for stage, keys in stages.items():
                store.runs.record_stage(name, iteration, stage, keys)
    assert policies(store, "base") == {0: "a", 1: "b", 2: "c"}
    assert policies(store, "again") == {0: "a", 1: "b", 2: "d"}
    assert policies(store, "lonely") == {}


def test_damaged_run_blocks_dropping_checkpoints(store: Store) -> None:
    record(store, "damaged", 6, prefix="d")
    file = Path(store.url, "runs", "damaged", "iterations", "00000.json")
    whole = file.read_bytes()
    file.write_bytes(whole[:20])
    Path(store.url, "runs", "a-file").write_text("no run")
    retention = Retention(store, "mine", every=3)
    assert retention.apply(MINE[:3]) == []
    file.write_bytes(whole)
    assert retention.apply(MINE[:3]) == ["c1"]
