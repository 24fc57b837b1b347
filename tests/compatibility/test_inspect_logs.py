"""Logs that Inspect wrote, read by Inspect: every planned sample is a trajectory, or set aside with a reason.

How the logs were made: tests/ragen/evidence/exchange/logs/README.md.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.ragen.store import Store
from tests.compatibility.environments import make_python

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

LOGS = Path(__file__).parents[1] / "ragen/evidence/exchange/logs"
PACKAGES = ["inspect-ai==0.3.285"]
REWRITE = """
import json, sys, zipfile, zipfile_zstd
source, target, changes = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
    for name in old.namelist():
        data = old.read(name)
        new.writestr(name, json.dumps(json.loads(data) | changes) if name == "header.json" else data)
"""
FAULTS = {  # what a log of faults says, by sample: id, epoch -> success, status, return, whether it is valid, truncated
    "late/1": (False, "env_error", 0.0, False, False),
    "long/1": (True, "ok", 1.0, True, True),
    "picture/1": (True, "ok", 1.0, True, False),
}


@pytest.fixture(autouse=True)
def _inspect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_INSPECT_PYTHON", str(make_python("inspect", PACKAGES)))


def run(store: Store, *arguments: object) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments), "--store", store.url])


def take(store: Store, file: Path, *options: str) -> dict[str, Any]:
    """Import a log; return the counts."""
    result = run(store, "import", "mine", file, "--format", "inspect", "--json", *options)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return json.loads(result.stdout[result.stdout.index("{") :])


def refusal(store: Store, file: Path) -> str:
    """Import a log that cannot be imported; return the message."""
    result = run(store, "import", "mine", file, "--format", "inspect")
    assert result.exit_code != 0
    return str(result.exception)


def query(store: Store, text: str) -> list[dict[str, Any]]:
    answer = run(store, "sql", "mine", text, "--json")
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """`changed(change)`: a copy of the JSON log with its parsed content changed."""

    def copy(change: Callable[[dict[str, Any]], object]) -> Path:
        log = json.loads((LOGS / "letters.json").read_text())
        change(log)
        file = tmp_path / "changed.json"
        file.write_text(json.dumps(log))
        return file

    return copy


@pytest.mark.parametrize(
    ("name", "traces", "set_aside", "turns"),
    [("shop.eval", 4, 0, 9), ("letters.json", 3, 0, 3), ("faults.eval", 3, 1, 4), ("killed.eval", 3, 3, 3)],
)
def test_rows_of_log_add_up(store: Store, name: str, traces: int, set_aside: int, turns: int) -> None:
    counts = take(store, LOGS / name)
    assert counts == {"run": "mine", "iterations": 1, "turns": turns, "traces": traces, "set_aside": set_aside}


def test_epochs_are_a_group(store: Store) -> None:
    take(store, LOGS / "shop.eval")
    rows = query(store, "select group_id, trajectory_id, success, trajectory_return r from trajectories order by all")
    assert [tuple(row.values()) for row in rows] == [
        ("milk", "milk/1", False, 0.0), ("milk", "milk/2", True, 1.0), ("tea", "tea/1", True, 1.0),
        ("tea", "tea/2", True, 1.0),
    ]  # fmt: skip
    calls = "json_extract(info, '$.imported.metadata.scores.num_calls.value')::int"
    assert query(store, f"select sum({calls}) as n from turns where turn = 0") == [{"n": 5}]


def test_errors_and_limits_are_statuses(store: Store) -> None:
    take(store, LOGS / "faults.eval")
    columns = "trajectory_id, success, status, trajectory_return, is_valid, truncated"
    rows = query(store, f"select {columns} from trajectories")
    assert {row.pop("trajectory_id"): tuple(row.values()) for row in rows} == FAULTS
    kinds = "json_extract_string(info, '$.imported.metadata.limit')"
    assert query(store, f"select trajectory_id t from turns where {kinds} = 'message'") == [{"t": "long/1"}]


def test_import_names_scorer_and_faults(store: Store) -> None:
    output = run(store, "import", "mine", LOGS / "faults.eval", "--format", "inspect").output
    assert "faults.eval: the reward is the score of 'match'" in output
    assert "1 set aside, such as 'faults.eval:broken/1' has no response, because of an error" in output


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is no log of Inspect that can be read here"),
        (b"no log", "is no log of Inspect that can be read here"),
        (b'{"messages": []}', "is no log of Inspect that can be read here"),
    ],
)
@pytest.mark.parametrize("ending", ["eval", "json"])
def test_other_file_is_refused(store: Store, tmp_path: Path, content: bytes, reason: str, ending: str) -> None:
    file = tmp_path / f"other.{ending}"
    file.write_bytes(content)
    assert reason in refusal(store, file)


def test_newer_log_names_versions(store: Store, tmp_path: Path, changed: Callable[..., Path]) -> None:
    assert "Unable to read version 9 of log format." in refusal(store, changed(lambda log: log.update(version=9)))
    file = tmp_path / "newer.eval"
    rewrite(LOGS / "shop.eval", file, version=9)
    assert "it is of version 9, and this inspect-ai reads up to 2" in refusal(store, file)


def rewrite(source: Path, target: Path, **changes: object) -> None:
    """Copy a log with fields of its header changed. Inspect compresses with zstd, and its environment reads that."""
    python = make_python("inspect", PACKAGES)
    subprocess.run([python, "-c", REWRITE, source, target, json.dumps(changes)], check=True)


def test_interrupted_log_counts_what_is_absent(store: Store, changed: Callable[..., Path]) -> None:
    def interrupt(log: dict[str, Any]) -> None:
        log["status"] = "cancelled"
        del log["samples"][1:]

    file = changed(interrupt)
    assert take(store, file) | {"run": "", "iterations": 1} == {
        "run": "", "iterations": 1, "turns": 1, "traces": 1, "set_aside": 2,
    }  # fmt: skip


def test_log_without_samples_says_status(store: Store, changed: Callable[..., Path]) -> None:
    def empty(log: dict[str, Any]) -> None:
        log["status"], log["samples"] = "started", []
        log["eval"]["dataset"]["sample_ids"] = []

    assert "has no samples; the status of its evaluation is 'started'" in refusal(store, changed(empty))

    def interrupt(log: dict[str, Any]) -> None:
        log["status"], log["samples"] = "started", []

    assert "is not in the log, whose status is 'started'" in refusal(store, changed(interrupt))


def test_killed_evaluation_names_status(store: Store) -> None:
    output = run(store, "import", "mine", LOGS / "killed.eval", "--format", "inspect").output
    assert re.search(r"3 set aside, such as 'killed.eval:\d/1' is not in the log, whose status is 'started'", output)


def test_log_without_scores_is_unpaid(store: Store, changed: Callable[..., Path]) -> None:
    def unscore(log: dict[str, Any]) -> None:
        for sample in log["samples"]:
            sample["scores"] = None

    file = changed(unscore)
    assert take(store, file)["traces"] == 3
    assert store.runs.find("mine").parameters["unpaid"] == [0]


def test_unscored_sample_is_set_aside(store: Store, changed: Callable[..., Path]) -> None:
    file = changed(lambda log: log["samples"][0]["scores"]["choice"].update(value=float("nan")))
    counts = take(store, file)
    assert (counts["traces"], counts["set_aside"]) == (2, 1)


def test_hostile_text_stays_data(store: Store, changed: Callable[..., Path]) -> None:
    def spoil(log: dict[str, Any]) -> None:
        for number, sample in enumerate(log["samples"]):
            sample["id"] = ["../../etc/<b>", "\x1b[2J\u202e", "x" * 3000][number]
            sample["messages"][0]["content"] = "<script>\x00\x1b]0;title\x07" * 1000
            sample["metadata"] = {"../\x1b": ["\0", {"deep": "\u2028"}]}
        log["eval"]["dataset"]["sample_ids"] = [sample["id"] for sample in log["samples"]]

    file = changed(spoil)
    result = run(store, "import", "mine", file, "--format", "inspect")
    shown = run(store, "show", "mine", "--iteration", "0")
    assert not {"\x1b", "\u202e", "\x07"} & {*result.output, *shown.output}
    assert query(store, "select count(*) n from turns where json_valid(info)") == [{"n": 3}]
