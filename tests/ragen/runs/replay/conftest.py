"""A stored run that was never executed: its artifacts are examples, each with a key of its own."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.examples import example, put_folder


def put(store: Store, stage: str, kind: str, number: int) -> str:
    """Store an example of this kind as the output of `stage` in iteration `number`; returns its key."""
    made_by, settings = Stage(name=stage, version=1), {"iteration": number}
    key = stage_key(made_by, settings, {}, None)
    store.put_table(kind, example(kind), Facts(key=key, stage=made_by, settings=settings, inputs={}, seed=None))
    return key


def put_checkpoint(store: Store, stage: str, number: int, folder: Path) -> str:
    made_by, settings = Stage(name=stage, version=1), {"iteration": number}
    key = stage_key(made_by, settings, {}, None)
    put_folder(store, "checkpoint", str(folder), Facts(key=key, stage=made_by, settings=settings, inputs={}, seed=None))
    return key


def record(folder: Path, num_iterations: int, without_update: tuple[int, ...] = (), flow: str = "starpo") -> Store:
    """Create a store with run 'base' of this many iterations."""
    store, weights = Store(str(folder / "store")), folder / "weights"
    weights.mkdir(parents=True)
    (weights / "model.safetensors").write_bytes(b"not looked into")
    config = preset("smoke", {"update.kl_coefficient": 0.0}).model_dump(mode="json")
    store.runs.create("base", flow=flow, preset="smoke", config=config)
    store.runs.record_stage("base", 0, "warm_start", {"checkpoint": put_checkpoint(store, "warm_start", 0, weights)})
    for number in range(num_iterations):
        store.runs.record_stage("base", number, "rollout", {"turns": put(store, "rollout", "turns", number)})
        store.runs.record_stage("base", number, "reward", {"rewards": put(store, "reward", "rewards", number)})
        selection = put(store, "variance_filter", "selection", number)
        store.runs.record_stage("base", number, "variance_filter", {"selection": selection})
        if number not in without_update:
            keys = {kind: put(store, "update", kind, number) for kind in ("samples", "metrics")}
            keys["checkpoint"] = put_checkpoint(store, "update", number, weights)
            store.runs.record_stage("base", number, "update", keys)
    return store


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Store with run 'base' of four finished iterations; not to be changed."""
    return record(tmp_path_factory.mktemp("base"), 4)


@pytest.fixture
def copied(base: Store, tmp_path: Path) -> Store:
    """Copy of `base` that a test may damage."""
    shutil.copytree(base.url, tmp_path / "own")
    return Store(str(tmp_path / "own"))


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Store]:
    """`recorded(3, without_update=(1,)) -> Store`: a new store with such a run."""
    return partial(record, tmp_path)
