"""`starpo report` and `starpo compare`: what they write and print, and their errors on invalid requests."""

import csv
import json
import os
import signal
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.evidence.report.words import differing_settings, differing_values
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.records.run import RunRecord
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import Stage
from tests.examples import example


@pytest.fixture
def store(tmp_path: Path, make_run: Callable) -> str:
    """URL of a store with the runs 'half' and 'quarter', which share all stages before the filter."""
    opened = Store(str(tmp_path / "store"))
    make_run(opened, "half", keep=0.5)
    make_run(opened, "quarter", keep=0.25)
    return opened.url


def ragen(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout.strip()


def refusal(*arguments: str) -> StarPOError:
    """Return the error that `flows.cli.main` prints as one message, with exit code 1."""
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, StarPOError), result.output
    return result.exception


@pytest.mark.ci
def test_report_written_to_given_path(store: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "report.html"
    assert ragen("report", "half", "--store", store, "-o", str(path), "--embed", "1") == str(path)
    assert path.read_text().startswith("<!doctype html>")


@pytest.mark.ci
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        ("report", "half", "-o", "{}.html"),
        ("compare", "half", "quarter", "-o", "{}.svg"),
        ("sql", "half", "select run from runs", "--csv", "{}.csv"),
        ("sql", "half", "select run from runs", "--parquet", "{}.parquet"),
    ],
)
def test_file_appears_only_when_complete(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], is_there: bool
) -> None:
    file = Path(command[-1].format(tmp_path / "out"))
    if is_there:
        file.write_text("earlier")
    monkeypatch.setattr(Path, "replace", lambda *_: os.kill(os.getpid(), signal.SIGINT))  # killed just before the end
    CliRunner().invoke(app, [*command[:-1], str(file), "--store", store])
    assert (file.read_text() if file.exists() else None) == ("earlier" if is_there else None)


@pytest.mark.ci
def test_unknown_run_or_iteration_named(store: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert "there is no run 'haf'" in str(refusal("report", "haf", "--store", store, "-o", str(path)))
    error = refusal("report", "half", "--store", store, "-o", str(path), "--embed", "7")
    assert str(error) == "run half has no rollout at iteration 7; it has 0 to 1"
    assert not path.exists()


def test_comparison_names_differing_settings(store: str) -> None:
    output = ragen("compare", "half", "quarter", "--store", store)
    assert "success by run" in output
    assert "keep" in output
    facts = json.loads(ragen("compare", "half", "quarter", "half", "--store", store, "--json"))
    assert [of["run"] for of in facts["runs"]] == ["half", "quarter"]
    assert facts["settings"] == {"keep": {"half": 0.5, "quarter": 0.25}}
    assert json.loads(ragen("compare", "half", "--store", store, "--json"))["settings"] == {}


def test_missing_setting_is_absent() -> None:
    runs = [
        RunRecord(name=name, flow="starpo", preset=None, created=datetime(2026, 1, 1, tzinfo=UTC), config=config)
        for name, config in (("a", {"seed": 1, "filter": {"keep": 0.5}}), ("b", {"seed": 1}))
    ]
    assert differing_settings(runs) == {"filter.keep": {"a": "0.5", "b": "absent"}}
    assert differing_values(runs) == {"filter.keep": {"a": 0.5}}


@pytest.fixture
def evaluated(store: str) -> Callable[[str, list[bool], int], None]:
    """Store an evaluation of a run: its name, the success of each prompt, and the seed of the first prompt."""

    def evaluate(run: str, successes: list[bool], first_seed: int = 0) -> None:
        opened, stage = Store(store), Stage(name="evaluate", version=1)
        rows = example("episodes").slice(0, 1).to_pylist() * len(successes)
        of_prompt = [
            {"member": 0, "env_seed": first_seed + n, "initial_state_digest": f"{first_seed + n:016x}", "status": "ok"}
            for n in range(len(successes))
        ]
        rows = [{**row, **of, "success": one} for row, of, one in zip(rows, of_prompt, successes, strict=True)]
        rate = sum(successes) / len(rows)
        numbers = {"": rate, "_low": rate - 0.1, "_high": rate + 0.1}
        headline = {f"evaluation/sokoban/success{end}": value for end, value in numbers.items()}
        key = uuid.uuid4().hex
        table = pa.Table.from_pylist(rows, DATASETS["episodes"].schema)
        facts = Facts(key=key, stage=stage, settings={}, inputs={}, seed=0, headline=headline)
        opened.put_table("episodes", table, facts)
        opened.runs.record_stage(run, 1, "evaluate:sokoban", {"episodes": key})

    return evaluate


@pytest.mark.ci
def test_comparison_uses_paired_initial_states(store: str, evaluated: Callable) -> None:
    evaluated("half", [True] * 3 + [False] * 21)
    evaluated("quarter", [True] * 15 + [False] * 9)
    output = ragen("compare", "half", "quarter", "--store", store)
    assert "+0.500 [+0.284, +0.716]" in output
    assert "< 0.001" in output  # 12 gained, none lost: 2 / 2**12 = 0.0005
    assert "paired by state; p: sign-flip test, corrected after Holm for these runs" in output
    facts = json.loads(ragen("compare", "half", "quarter", "--store", store, "--json"))
    assert facts["runs"][0]["difference"] is None
    assert facts["runs"][1]["difference"]["num_pairs"] == 24


def test_other_panels_are_not_paired(store: str, evaluated: Callable) -> None:
    evaluated("half", [True] * 3 + [False] * 21)
    evaluated("quarter", [True] * 15 + [False] * 9, 500)
    output = ragen("compare", "half", "quarter", "--store", store)
    assert "Unpaired: evaluated on other initial states" in output
    assert "paired by state" not in output


def test_other_environment_is_not_compared(store: str, evaluated: Callable) -> None:
    evaluated("half", [True] * 3 + [False] * 21)
    config = {"environment": {"type": "frozen_lake"}}
    Store(store).runs.create("lake", flow="starpo", preset=None, config=config)
    words = "not compared: it is evaluated on frozen_lake, the first run on sokoban"
    assert words in ragen("compare", "half", "lake", "--store", store)
    other = json.loads(ragen("compare", "half", "lake", "--store", store, "--json"))["runs"][1]
    assert (other["difference"], other["words"]) == (None, words)
    assert "not compared: it has no evaluation yet" in ragen("compare", "half", "quarter", "--store", store)


def test_several_differences_are_corrected(store: str, evaluated: Callable, make_run: Callable, tmp_path: Path) -> None:
    """Six states up and none down: 2 / 2^6, of two hypotheses; the other, 5 up of 10, has 2 / 2^5."""
    make_run(Store(store), "third", keep=0.75)
    evaluated("half", [False] * 12)
    evaluated("quarter", [True] * 6 + [False] * 6)
    evaluated("third", [True] * 5 + [False] * 7)
    facts = json.loads(ragen("compare", "half", "quarter", "third", "--store", store, "--json"))
    differences = [run["difference"] for run in facts["runs"][1:]]
    assert [of["p_value"] for of in differences] == [0.03125, 0.0625]
    assert [of["adjusted_p_value"] for of in differences] == [0.0625, 0.0625]
    path = tmp_path / "three.svg"
    ragen("compare", "half", "quarter", "third", "--store", store, "-o", str(path))
    picture = path.read_text()
    assert picture.count('id="interval') == 2
    assert all(f"keep = {value}" in picture for value in ("0.5", "0.25", "0.75"))


@pytest.mark.ci
def test_a_comparison_is_written_by_suffix(store: str, tmp_path: Path, evaluated: Callable) -> None:
    evaluated("half", [True] * 3 + [False] * 21)
    evaluated("quarter", [True] * 15 + [False] * 9)
    starts = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG", "csv": b"run,state", "tex": b"% needs"}
    for suffix, start in starts.items():
        path = tmp_path / f"two.{suffix}"
        ragen("compare", "half", "quarter", "--store", store, "-o", str(path))
        assert path.read_bytes().startswith(start)
    first, second = csv.DictReader((tmp_path / "two.csv").open())
    assert (first["difference"], float(second["difference"]), second["difference_num_pairs"]) == ("", 0.5, "24")
    table = (tmp_path / "two.tex").read_text()
    assert table.count(r" \\") == 3
    assert r"quarter & completed & 2 & 0.625 [0.525, 0.725]" in table


@pytest.mark.ci
def test_names_are_text_to_latex(store: str, make_run: Callable, tmp_path: Path) -> None:
    make_run(Store(store), "a_b")
    ragen("compare", "a_b", "--store", store, "-o", str(tmp_path / "one.tex"))
    assert r"a\_b & completed" in (tmp_path / "one.tex").read_text()


def test_undrawable_comparison_says_why(store: str, tmp_path: Path) -> None:
    error = refusal("compare", "half", "--store", store, "-o", str(tmp_path / "two.doc"))
    assert "ends in .svg or .pdf or .png or .csv or .tex" in str(error)
    error = refusal("compare", "half", "--store", store, "-o", str(tmp_path / "two.svg"))
    assert "no evaluation in half" in str(error)
    (tmp_path / "file").write_text("no folder")
    error = refusal("compare", "half", "--store", store, "-o", str(tmp_path / "file" / "two.svg"))
    assert "two.svg cannot be written" in str(error)
    assert "--output" in str(error)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report.svg", "ends in .html"),
        ("folder.html", "it is a folder"),
        ("file/new/report.html", "file is not a folder"),
    ],
)
def test_unwritable_report_refused_before_reading(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder.html").mkdir()
    monkeypatch.setattr("starpo.flows.cli.report.write_report", lambda *_, **__: pytest.fail("the run was read"))
    assert message in str(refusal("report", "half", "--store", store, "-o", str(tmp_path / name)))


@pytest.mark.ci
def test_report_shows_audits_by_default(store: str, tmp_path: Path) -> None:
    path, without = tmp_path / "with.html", tmp_path / "without.html"
    ragen("report", "half", "--store", store, "-o", str(path))
    page = path.read_text()
    assert 'id="audits"' in page
    for title in ("Incomplete trajectories in baselines", "Staleness", "Re-tokenisation drift", "Contaminated panels"):
        assert f"<td>{title}</td>" in page
    ragen("report", "half", "--store", store, "-o", str(without), "--no-audits")
    assert 'id="audits"' not in without.read_text()


@pytest.mark.ci
def test_failed_audit_named_in_its_place(store: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    damaged = next(Path(store).glob("samples/*/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    ragen("report", "half", "--store", store, "-o", str(path))
    page = path.read_text()
    assert '<td>staleness</td><td class="severity warning">not done</td>' in page
    assert "<td>Invalid formats</td>" in page
