"""Behaviour that all `starpo` commands share."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest
from typer.testing import CliRunner

import starpo.flows.cli
from starpo.flows.presets import preset
from starpo.ragen.store import Store
from tests.flows.command import ragen


@pytest.mark.parametrize(("value", "holds"), [(None, "1"), ("0", "0")])
def test_usage_data_off_by_default(monkeypatch, value, holds):
    monkeypatch.setattr(os, "environ", {} if value is None else {"DO_NOT_TRACK": value})
    environments = []
    monkeypatch.setattr(starpo.flows.cli, "app", lambda: environments.append(dict(os.environ)))
    starpo.flows.cli.main()
    assert environments == [{"DO_NOT_TRACK": holds}]


def test_version_is_the_packages() -> None:
    result = CliRunner().invoke(starpo.flows.cli.app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"starpo {version('starpo')}\n")


def test_uninstalled_checkout_version_is_its_commit(monkeypatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    result = CliRunner().invoke(starpo.flows.cli.app, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"starpo, not installed, at commit \S+\n", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("show mine --trajectory g0000-0", "--trajectory needs --iteration N"),
        ("show mine --iteration 0 --prompts", "--prompts needs --trajectory ID"),
        ("show mine --iteration 0 --timings", "leave out --iteration"),
        ("checkpoint mine --output folder", "--output needs --iteration N"),
        ("import mine turns.parquet --groups alone", "turns contain their groups"),
        ("diagnose mine -o plane.png", "give a name that ends in .svg"),
        ("compare mine -o curves.html", "give a name that ends in .svg or .pdf"),
    ],
)
def test_options_without_effect_are_refused(tmp_path, arguments, message):
    result = ragen(*arguments.split(), cwd=tmp_path, STARPO_STORE=str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_negative_iteration_is_refused(tmp_path):
    result = ragen("verify", "mine", "--from", "-1", STARPO_STORE=str(tmp_path), COLUMNS="200")
    assert result.returncode == 2
    assert "Invalid value for '--from'" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "verify minne",
        "verify mine --stage rewards",
        "verify mine --sample 10",
        "audit minne",
        "audit mine reward",
        "store verify --store /dev/null/none",
    ],
)
def test_unstarted_check_has_no_verdict(tmp_path, arguments):
    """Exit code 1 would say that something is different or damaged."""
    store = Store(str(tmp_path / "store"))
    store.runs.create("mine", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    result = ragen(*arguments.split(), STARPO_STORE=store.url)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")


def test_query_without_run_is_explained(tmp_path):
    result = ragen("sql", "select 1", STARPO_STORE=str(tmp_path), COLUMNS="200")
    assert result.returncode == 2
    assert "name a run and a query" in result.stderr


@pytest.mark.parametrize("group", ["store", "new"])
def test_command_group_has_no_completion(group):
    result = ragen(group, "--help")
    assert (result.returncode, "--help" in result.stdout, "completion" in result.stdout) == (0, True, False)


def test_suggested_next_command_works_in_folder(tmp_path):
    output = ragen("new", "environment", "ladder", "--folder", "made", cwd=tmp_path).stdout
    assert "starpo train made/ladder.toml" in output
    assert (tmp_path / "made" / "ladder.toml").is_file()


@pytest.mark.thorough
@pytest.mark.parametrize("options", [[], ["--free-text"]])
def test_new_environment_passes_its_own_test(tmp_path, options):
    assert "wrote ladder.py" in ragen("new", "environment", "ladder", *options, cwd=tmp_path).stdout
    assert ("FreeText(" in (tmp_path / "ladder.py").read_text()) == bool(options)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_ladder.py"]
    tested = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout
    command = [sys.executable, "-m", "starpo.flows.cli", "validate", "ladder.toml"]
    validated = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (validated.returncode, validated.stderr) == (0, ""), validated.stderr
