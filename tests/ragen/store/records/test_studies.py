"""Artifacts measured by sweeps are kept like those made by runs."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.store.keeping.garbage import delete_garbage, find_garbage
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.ragen.store.keeping.reachability import Reachability
from starpo.ragen.store.keeping.usage import measure
from starpo.ragen.store.records.studies import named_cells, sweep_names, write_cells
from starpo.ragen.store.remote.opening import open_location
from starpo.schemas.manifest import Stage
from tests.examples import example

EVALUATE = Stage(name="evaluate", version=2)


@pytest.fixture
def swept(tmp_path: Path, make_run: Callable[..., list[tuple[str, str]]]) -> tuple[Store, str, str]:
    """Store with a run, a sweep's cell on its last checkpoint, and a cell that no sweep names; keys of both cells."""
    store = Store(str(tmp_path / "store"))
    checkpoint = make_run(store, "mine")[-1][1]
    cells = []
    for seed in (1, 2):
        key = stage_key(EVALUATE, {"seed": seed}, {"checkpoint": checkpoint}, seed)
        work = {"stage": EVALUATE, "settings": {"seed": seed}, "inputs": {"checkpoint": checkpoint}, "seed": seed}
        store.put_table("episodes", example("episodes"), Facts(key=key, **work))
        cells.append(key)
    write_cells(open_location(store.url), "nightly", {"mine@2 sokoban": {"episodes": cells[0]}})
    return store, cells[0], cells[1]


def test_garbage_keeps_named_cells_and_inputs(swept: tuple[Store, str, str]) -> None:
    store, named, unnamed = swept
    location = open_location(store.url)
    store.runs.forget("mine")
    garbage = find_garbage(location, min_age=timedelta(0))
    assert garbage.faults == []
    delete_garbage(location, garbage)
    assert store.has("episodes", named)
    assert not store.has("episodes", unnamed)
    checkpoint = store.manifest("episodes", named).inputs["checkpoint"]
    assert store.has("checkpoint", checkpoint)
    assert store.has("turns", store.manifest("checkpoint", checkpoint).inputs["turns"])


def test_usage_lists_sweep_beside_runs(swept: tuple[Store, str, str]) -> None:
    usages = {usage.run: usage for usage in measure(open_location(swept[0].url)).runs}
    assert set(usages) == {"mine", "sweeps/nightly"}
    assert usages["sweeps/nightly"].num_faults == 0


def test_missing_cell_is_a_fault(swept: tuple[Store, str, str]) -> None:
    store, _, _ = swept
    write_cells(open_location(store.url), "nightly", {"mine@2 sokoban": {"episodes": "f" * 32}})
    (fault,) = Reachability(open_location(store.url)).of("sweeps/nightly").faults
    assert str(fault).startswith(f"episodes/{'f' * 32} is not in the store; needed by run sweeps/nightly")


def test_damaged_record_stops_deletion(swept: tuple[Store, str, str]) -> None:
    store, _, _ = swept
    location = open_location(store.url)
    (Path(store.url) / "sweeps" / "nightly" / "cells.json").write_text("{")
    with pytest.raises(ArtifactDamagedError, match=r"sweeps/nightly/cells.json cannot be read .* run the sweep again"):
        find_garbage(location, min_age=timedelta(0))
    assert [damage.place for damage in verify_store(location).damages] == ["sweeps/nightly"]


def test_cells_are_replaced_as_a_whole(tmp_path: Path) -> None:
    location = open_location(str(tmp_path))
    assert named_cells(location, "nightly") == {}
    write_cells(location, "nightly", {"a": {"episodes": "0" * 32}})
    write_cells(location, "nightly", {"b": {"episodes": "1" * 32}})
    assert named_cells(location, "nightly") == {"b": {"episodes": "1" * 32}}
    assert sweep_names(location) == ["nightly"]
