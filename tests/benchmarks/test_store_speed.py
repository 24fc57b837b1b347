"""Cost of validation and storage, relative to pyarrow writing the same table in the same run."""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts import datasets
from starpo.schemas.manifest import Stage
from starpo.schemas.validate import validate
from tests.examples import GROUP_SIZE, TURNS_EACH, example, example_turns

pytestmark = pytest.mark.benchmark

NUM_TURNS = 100_000
REPEATS = 7


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def test_validating_and_writing_cost_at_most_twice_the_writing(tmp_path: Path) -> None:
    table = example_turns(NUM_TURNS // (GROUP_SIZE * TURNS_EACH))
    assert table.num_rows == NUM_TURNS
    store, number = Store(str(tmp_path / "store")), iter(range(1000))

    def put() -> None:
        work: dict[str, Any] = {"settings": {}, "inputs": {}, "seed": None}
        store.put_table("turns", table, Facts(key=f"k{next(number)}", stage=Stage(name="rollout", version=1), **work))

    def validated() -> None:
        validate(table, "turns")
        pq.write_table(table, tmp_path / "b.parquet")

    calls: dict[str, Callable[[], object]] = {
        "pyarrow writes": lambda: pq.write_table(table, tmp_path / "a.parquet"),
        "validate": lambda: validate(table, "turns"),
        "validate, pyarrow writes": validated,
        "validate, digest, write": lambda: datasets.write_dataset(table, "turns", tmp_path / "c.parquet"),
        "store.put_table": put,
    }
    for call in calls.values():
        call()
    rounds = [{name: seconds(call) for name, call in calls.items()} for _ in range(REPEATS)]
    plain = "pyarrow writes"
    print(f"\n{NUM_TURNS} turns, {table.nbytes / 1e6:.0f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    ratios = {}
    for name in calls:
        ratios[name] = statistics.median(r[name] / r[plain] for r in rounds)
        print(f"  {name:26} {statistics.median(r[name] for r in rounds):.3f} s   {ratios[name]:.2f} x")
    assert ratios["validate, pyarrow writes"] <= 2.0
    assert ratios["store.put_table"] <= 3.0


def test_a_stage_pays_little_for_its_artifact(tmp_path: Path) -> None:
    """Sizes are those of an iteration of the embedded default: about 400 trajectories, and several small tables."""
    store = Store(str(tmp_path / "store"))
    turns, small = example_turns(96), example("metrics")
    work: dict[str, Any] = {"stage": Stage(name="s", version=1), "settings": {}, "inputs": {}, "seed": None}
    store.put_table("turns", turns, Facts(key="warm", **work))
    store.read_table("turns", "warm")
    times: dict[str, list[float]] = {"put turns": [], "read turns": [], "put metrics": [], "record stage": []}
    for n in range(REPEATS):
        times["put turns"].append(seconds(lambda n=n: store.put_table("turns", turns, Facts(key=f"k{n}", **work))))  # type: ignore[misc]
        times["read turns"].append(seconds(lambda n=n: store.read_table("turns", f"k{n}")))  # type: ignore[misc]
        times["put metrics"].append(seconds(lambda n=n: store.put_table("metrics", small, Facts(key=f"k{n}", **work))))  # type: ignore[misc]
        times["record stage"].append(seconds(lambda n=n: store.runs.record_stage("r", n, "s", {"turns": "k"})))  # type: ignore[misc]
    print(f"\n{turns.num_rows} turns, load {os.getloadavg()[0]:.1f}")
    for name, values in times.items():
        print(f"  {name:14} {1000 * statistics.median(values):.1f} ms")
    assert sum(statistics.median(values) for values in times.values()) < 1.0
