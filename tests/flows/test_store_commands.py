"""`starpo store` as people and machines use it: tables, JSON, exit codes, one message for bad input."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from tests.permissions import obey_permissions

MakeRun = Callable[..., list[tuple[str, str]]]


pytestmark = pytest.mark.usefixtures("nothing_verified_yet")


@pytest.fixture
def stored(tmp_path: Path, make_run: MakeRun) -> Path:
    """Folder of a store with the run `mine`, and with artifacts that only a deleted run needed."""
    store = Store(str(tmp_path / "store"))
    make_run(store, "mine", 1)
    make_run(store, "gone", 1, keep=0.25)
    store.runs.forget("gone")
    return tmp_path / "store"


def ragen(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result.output


def as_json(*arguments: str, exit_code: int = 0) -> Any:
    return json.loads(ragen(*arguments, "--json", exit_code=exit_code))


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, StoreError | ValueError), result.output
    return str(result.exception)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_gc_dry_run_changes_nothing(stored: Path) -> None:
    before = files(stored)
    text = ragen("store", "gc", "--dry-run", "--min-age", "0s", "--store", str(stored))
    assert "would be deleted" in text
    assert "checkpoint" in text
    assert "kept: 7 artifacts that runs need" in text
    facts = as_json("store", "gc", "--dry-run", "--min-age", "0s", "--store", str(stored))
    assert {row["kind"]: row["number"] for row in facts["deleted"]} == {
        "checkpoint": 1, "metrics": 1, "samples": 1, "selection": 1,
    }  # fmt: skip
    assert facts["total"]["number"] == len(facts["folders"]) == 4
    assert facts["total"]["size_bytes"] == sum(f.stat().st_size for d in facts["folders"] for f in files(stored / d))
    assert facts["dry_run"] is True
    assert files(stored) == before


def test_gc_deletes_just_that(stored: Path) -> None:
    planned = as_json("store", "gc", "--dry-run", "--min-age", "0s", "--store", str(stored))
    done = as_json("store", "gc", "--min-age", "0s", "--store", str(stored))
    assert done == {**planned, "dry_run": False}
    assert not any((stored / folder).exists() for folder in planned["folders"])
    assert "nothing in" in ragen("store", "gc", "--store", str(stored))
    assert as_json("runs", "--store", str(stored))[0]["run"] == "mine"


def test_gc_keeps_young_by_default(stored: Path) -> None:
    assert "kept: younger than 1d (shorter: --min-age AGE): 4" in ragen("store", "gc", "--store", str(stored))


def test_gc_beside_a_gap(stored: Path) -> None:
    (turns,) = (stored / "turns").iterdir()
    (turns / "manifest.json").unlink()
    before = files(stored)
    message = refused("store", "gc", "--min-age", "0s", "--store", str(stored))
    assert f"turns/{turns.name} is not in the store; needed by run mine, iteration 0, stage rollout" in message
    assert files(stored) == before
    assert "this would be refused" in ragen("store", "gc", "--dry-run", "--store", str(stored))
    text = ragen("store", "gc", "--min-age", "0s", "--ignore-missing", "--store", str(stored))
    assert "deleted anyway" in text
    assert turns.exists()


@pytest.mark.ci
@pytest.mark.parametrize("age", ["", "d", "1", "1y", "-1d", "1.5h", "a day"])
def test_gc_with_invalid_age(stored: Path, age: str) -> None:
    message = refused("store", "gc", "--min-age", age, "--store", str(stored))
    assert "--min-age" in message
    assert "such as 12h" in message


def test_du(stored: Path) -> None:
    text = ragen("store", "du", "--store", str(stored))
    assert "by run" in text
    assert "mine" in text
    facts = as_json("store", "du", "--store", str(stored))
    assert facts["size_bytes"] == sum(path.stat().st_size for path in files(stored))
    assert {run["run"]: run["number"] for run in facts["runs"]} == {"mine": 7}


def test_gc_deletes_only_forgotten_runs_artifacts(stored: Path) -> None:
    assert "did you mean mine" in refused("store", "forget", "mini", "--yes", "--store", str(stored))
    declined = CliRunner().invoke(app, ["store", "forget", "mine", "--store", str(stored)], input="n\n")
    assert declined.exit_code == 1
    config = Store(str(stored)).runs.get("mine").config
    another = Store(str(stored)).runs.create("other", flow="starpo", preset=None, config=config)
    before = {path for path in files(stored) if "runs" not in path.parts}
    output = ragen("store", "forget", "mine", "--yes", "--store", str(stored))
    assert "is forgotten" in output
    assert "once that is 1d old (sooner: --min-age 1h" in output
    assert [run["run"] for run in as_json("runs", "--store", str(stored))] == [another.name]
    assert {path for path in files(stored) if "runs" not in path.parts} == before
    ragen("store", "gc", "--min-age", "0s", "--store", str(stored))
    assert {path for path in files(stored) if "runs" not in path.parts} == set()


def test_verify_names_flipped_byte_and_users(stored: Path) -> None:
    assert "11 artifacts" in ragen("store", "verify", "--store", str(stored))
    (turns,) = (stored / "turns").iterdir()
    data = bytearray((turns / "part-00000.parquet").read_bytes())
    data[100] ^= 1
    (turns / "part-00000.parquet").write_bytes(data)
    text = ragen("store", "verify", "--store", str(stored), exit_code=1)
    assert f"turns/{turns.name}" in text
    assert "mine" in text
    facts = as_json("store", "verify", "--store", str(stored), exit_code=1)
    assert [(damage["place"], damage["runs"]) for damage in facts["damages"]] == [(f"turns/{turns.name}", ["mine"])]


def test_copy_and_look_at_the_copy(stored: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "copy")
    assert as_json("store", "copy", "mine", target, "--store", str(stored))["num_copied"] == 7
    assert "already there: 7 artifacts" in ragen("store", "copy", "mine", target, "--store", str(stored))
    here, there = (as_json("runs", "--store", store)[0] for store in (str(stored), target))
    assert here["run"] == "mine"
    assert {**here, "store": ""} == {**there, "store": ""}
    assert as_json("show", "mine", "--iteration", "0", "--store", str(stored)) == as_json(
        "show", "mine", "--iteration", "0", "--store", target
    )
    output = ragen("store", "verify", "--store", target)
    assert "files, rows and seals are as recorded" in output
    assert "starpo verify RUN" in output


def test_copy_of_missing_run(stored: Path, tmp_path: Path) -> None:
    message = refused("store", "copy", "mini", str(tmp_path / "copy"), "--store", str(stored))
    assert "did you mean mine" in message
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("command", [["gc"], ["du"], ["verify"]])
def test_a_place_without_a_store(tmp_path: Path, command: list[str]) -> None:
    assert "check the store's address" in refused("store", *command, "--store", str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.ci
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
@pytest.mark.parametrize("what", ["gc", "copy"])
def test_a_store_without_permission_to_write(stored: Path, tmp_path: Path, make_run: MakeRun, what: str) -> None:
    closed = tmp_path / "closed"
    if what == "gc":
        closed = stored
    else:
        make_run(Store(str(closed)), "other", 1)
    command = {
        "gc": ["-m", "starpo.flows.cli", "store", "gc", "--min-age", "0s", "--store", str(closed)],
        "copy": ["-m", "starpo.flows.cli", "store", "copy", "mine", str(closed), "--store", str(stored)],
    }[what]
    before = files(tmp_path)
    folders = [closed, *(path for path in closed.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, *command], preexec_fn=obey_permissions, capture_output=True, text=True, timeout=120
        )
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("error: cannot ")
    assert str(closed) in done.stderr
    assert "Permission denied" in done.stderr
    assert "may read and write" in done.stderr
    assert "Traceback" not in done.stderr
    assert files(tmp_path) == before
