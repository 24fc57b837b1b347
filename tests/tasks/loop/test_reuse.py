"""A run reports which stages are already stored, and which code made them."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.provenance import code_revision, versions
from starpo.schemas.manifest import Stage
from starpo.tasks.loop.plan import plan_run
from starpo.tasks.loop.reuse import Reuse, reused
from tests.examples import example, put_folder

CONFIG = apply_overrides(preset("smoke"), {"iterations": 2})
HERE = {"versions": versions(), "code": code_revision()}
OTHER = {"versions": {**versions(), "starpo": "0.0.9"}, "code": "0123456789abcdef-modified-cafe0123"}


def put(store: Store, num_stages: int, made_by: dict[str, Any]) -> None:
    """Store the first stages of a run, with arbitrary content."""
    for stage in plan_run(store, "x", CONFIG).stages[:num_stages]:
        facts = {"stage": Stage(name="made", version=1), "settings": {}, "inputs": {}, "seed": None}
        for kind in stage.outputs:
            if kind != "checkpoint":
                store.put_table(kind, example(kind), Facts(key=stage.key, **facts, provenance=made_by))
                continue
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "config.json").write_text("{}")
                put_folder(store, kind, folder, Facts(key=stage.key, **facts, provenance=made_by))


def test_empty_store_reuses_nothing(tmp_path: Path) -> None:
    assert str(reused(Store(str(tmp_path)), "x", CONFIG)) == "nothing is reused: all stages are new"


def test_what_is_stored_is_counted(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, 3, HERE)
    assert reused(store, "x", CONFIG) == Reuse(3, {})
    assert str(reused(store, "x", CONFIG)) == "3 stages are reused, made by this code"


def test_what_other_code_made_is_told(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, 2, OTHER)
    put(store, 3, HERE)
    reuse = reused(store, "x", CONFIG)
    assert reuse == Reuse(3, {"starpo 0.0.9 at 0123456789ab-modified-cafe0123": 2})
    assert str(reuse) == (
        "3 stages are reused, 2 of them made by other code (2 by starpo 0.0.9 at 0123456789ab-modified-cafe0123); "
        "--fresh trains without reusing any"
    )


def test_a_fresh_run_finds_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, 3, HERE)
    assert reused(store, "x", apply_overrides(CONFIG, {"fresh": "today"})).num_stages == 0


def test_independent_stage_may_be_missing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, 4, HERE)
    stages = plan_run(store, "x", CONFIG).stages
    evaluation = next(stage for stage in stages if stage.stage.name == "evaluate")
    assert stages.index(evaluation) < 4
    for kind in evaluation.outputs:
        for file in (tmp_path / kind / evaluation.key).iterdir():
            file.unlink()
        (tmp_path / kind / evaluation.key).rmdir()
    assert reused(store, "x", CONFIG).num_stages == 3


@pytest.mark.parametrize("damage", ["", "{"])
def test_unreadable_manifest_is_unknown_code(tmp_path: Path, damage: str) -> None:
    store = Store(str(tmp_path))
    put(store, 1, HERE)
    (manifest,) = (tmp_path / "checkpoint").glob("*/manifest.json")
    manifest.write_text(damage)
    assert reused(Store(str(tmp_path)), "x", CONFIG).others == {"unknown code": 1}
