"""`ragen report` and `ragen compare`: their files, and their errors on invalid requests."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.ragen.core.errors import ConfigError, StarPOError, StoreError
from starpo.ragen.store import Store


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


def test_a_report_is_written_where_it_was_asked_for(store: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "report.html"
    assert ragen("report", "half", "--store", store, "-o", str(path), "--embed", "1") == str(path)
    assert path.read_text().startswith("<!doctype html>")


def test_an_unknown_run_or_iteration_is_named(store: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert "there is no run 'haf'" in str(refusal("report", "haf", "--store", store, "-o", str(path)))
    error = refusal("report", "half", "--store", store, "-o", str(path), "--embed", "7")
    assert str(error) == "run half has no rollout at iteration 7; it has 0 to 1"
    assert not path.exists()


def test_a_comparison_is_a_page_or_a_picture_by_its_name(store: str, tmp_path: Path) -> None:
    page, picture = tmp_path / "two.html", tmp_path / "two.svg"
    assert ragen("compare", "half", "quarter", "--store", store, "-o", str(page)) == str(page)
    text = page.read_text()
    assert "<h1>Comparison of runs</h1>" in text
    assert "<code>keep</code>" in text
    assert isinstance(refusal("compare", "half", "--store", store, "-o", str(picture)), ConfigError)  # never evaluated
    ragen("compare", "half", "quarter", "--store", store, "-o", str(page), "--title", "A <b> title")
    assert "<h1>A &lt;b&gt; title</h1>" in page.read_text()


@pytest.mark.parametrize("runs", [["half"], ["half", "half"]])
def test_a_comparison_of_a_run_with_itself_is_refused(store: str, tmp_path: Path, runs: list[str]) -> None:
    error = refusal("compare", *runs, "--store", store, "-o", str(tmp_path / "one.html"))
    assert "at least two runs, and only 'half' was named" in str(error)
    assert "`ragen report`" in str(error)
    assert not (tmp_path / "one.html").exists()


def test_a_comparison_is_written_beside_the_reports(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGEN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    written = ragen("compare", "half", "quarter", "--store", store)
    assert written == str(tmp_path / "state" / "reports" / "comparison.html")
    assert not (tmp_path / "comparison.html").exists()


def test_a_comparison_of_no_known_kind_is_refused(store: str, tmp_path: Path) -> None:
    error = refusal("compare", "half", "--store", store, "-o", str(tmp_path / "two.pdf"))
    assert "ends in .html" in str(error)
    assert ".svg" in str(error)


def test_a_comparison_with_an_unknown_run_suggests_near_ones(store: str, tmp_path: Path) -> None:
    error = refusal("compare", "half", "quater", "--store", store, "-o", str(tmp_path / "two.html"))
    assert isinstance(error, StoreError)
    assert "did you mean quarter" in str(error)


def test_a_file_that_cannot_be_written_is_named(store: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    error = refusal("compare", "half", "--store", store, "-o", str(tmp_path / "file" / "two.html"))
    assert "two.html cannot be written" in str(error)
    assert "--output" in str(error)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("report.svg", "ends in .html"),
        ("folder.html", "it is a folder"),
        ("file/new/report.html", "file is not a folder"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_the_run_is_read(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, found: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder.html").mkdir()
    monkeypatch.setattr("starpo.flows.cli.report.write_report", lambda *_, **__: pytest.fail("the run was read"))
    assert found in str(refusal("report", "half", "--store", store, "-o", str(tmp_path / name)))


def test_a_report_shows_its_audits_unless_told_not_to(store: str, tmp_path: Path) -> None:
    path, without = tmp_path / "with.html", tmp_path / "without.html"
    ragen("report", "half", "--store", store, "-o", str(path))
    page = path.read_text()
    assert 'id="audits"' in page
    for title in ("Incomplete trajectories in baselines", "Staleness", "Re-tokenisation drift", "Contaminated panels"):
        assert f"<td>{title}</td>" in page
    ragen("report", "half", "--store", store, "-o", str(without), "--no-audits")
    assert 'id="audits"' not in without.read_text()


def test_what_cannot_be_audited_is_said_in_its_place(store: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    damaged = next(Path(store).glob("samples/*/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    ragen("report", "half", "--store", store, "-o", str(path))
    page = path.read_text()
    assert '<td>staleness</td><td class="severity warning">not done</td>' in page
    assert "<td>Invalid formats</td>" in page
