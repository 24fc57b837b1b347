"""Bad input at the command line: one clear message that says what to do, exit code 1, no traceback, nothing lost."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.flows.console.conclusion import conclude
from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.examples import example
from tests.flows.command import Result, ragen
from tests.permissions import obey_permissions

RAGEN = [sys.executable, "-m", "starpo.flows.cli"]
STAGE = Stage(name="rollout", version=1)


def ragen_apart(*arguments: str, cwd: Path, **env: str) -> Result:
    """Run the command in a separate process, as a shell does."""
    return subprocess.run(
        [*RAGEN, *arguments], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=120
    )


def ragen_obeying(*arguments: str, cwd: Path) -> Result:
    """Run the command in a separate process to which file permissions apply, even as root."""
    return subprocess.run(
        [*RAGEN, *arguments], cwd=cwd, preexec_fn=obey_permissions, capture_output=True, text=True, timeout=120
    )


def refused(*arguments: str, cwd: Path, run: Callable[..., Result] = ragen, **env: str) -> str:
    """Return the message of a command that must fail cleanly."""
    result = run(*arguments, cwd=cwd, **env)
    assert result.returncode == 1, result.stdout + result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Folder of the only rollout in a store with one run of one iteration."""
    store = Store(str(tmp_path / "store"))
    settings = {"what": "example"}
    key = stage_key(STAGE, settings, {}, 0)
    store.put_table("turns", example("turns"), Facts(key=key, stage=STAGE, settings=settings, inputs={}, seed=0))
    store.runs.create("mine", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    store.runs.record_stage("mine", 0, "rollout", {"turns": key})
    return tmp_path / "store" / "turns" / key


def show_trajectory(stored: Path) -> str:
    identifier = str(example("turns")["trajectory_id"][0])
    store = str(stored.parent.parent)
    return refused("show", "mine", "--iteration", "0", "--trajectory", identifier, "--store", store, cwd=stored.parent)


def test_an_intact_trajectory_is_shown(stored: Path) -> None:
    identifier, store = str(example("turns")["trajectory_id"][0]), str(stored.parent.parent)
    result = ragen("show", "mine", "--iteration", "0", "--trajectory", identifier, "--store", store, cwd=stored)
    assert result.returncode == 0, result.stderr
    assert "turn 0" in result.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_lacking_characters(stored: Path, encoding: str) -> None:
    """A locale that is not UTF-8, or text that is not: escaped, so JSON still says the same."""
    query = ["sql", "mine", "select chr(233) || chr(9731) || chr(128512) as text", "--store", str(stored.parent.parent)]
    command = [*RAGEN, *query]
    for options in ([], ["--json"]):
        env = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run([*command, *options], cwd=stored, env=env, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.decode(encoding)) == [{"text": "\u00e9\u2603\U0001f600"}]


def test_misspelt_setting(tmp_path: Path) -> None:
    message = refused("validate", "sokoban", "--set", "filter.kep=0.5", cwd=tmp_path)
    assert "filter.kep" in message
    assert "keep" in message.replace("filter.kep", "")


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("iterations = = 3")
    assert "mine.toml: is not TOML: Invalid value (at line 1" in refused("validate", "mine.toml", cwd=tmp_path)


def test_flipped_byte_is_one_message(stored: Path) -> None:
    file = next(stored.glob("*.parquet"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert "sha256 differs" in show_trajectory(stored)


def test_a_store_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where a folder should be")
    message = refused("show", "mine", "--store", str(tmp_path / "store"), cwd=tmp_path)
    assert str(tmp_path / "store") in message


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder in which nobody can make one: Linux has /proc")
def test_a_store_that_cannot_be_made() -> None:
    with pytest.raises(StoreError, match="Check that /proc/nope is a folder that you may read and write"):
        Store("/proc/nope").runs.create("mine", flow="starpo", preset="smoke", config={})


@pytest.mark.ci
def test_no_server_and_none_allowed(tmp_path: Path) -> None:
    message = refused("up", cwd=tmp_path, run=ragen_apart, PREFECT_API_URL="http://prefect.invalid:4200/api")
    assert "prefect.invalid" in message


@pytest.mark.parametrize("command", [("prompt", "place/mine.jinja"), ("environment", "stairs", "--folder", "place")])
def test_template_in_file_instead_of_folder(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "place").touch()
    message = refused("new", *command, cwd=tmp_path)
    assert re.match(r"error: place/\S+ cannot be written \(File exists\); choose a folder that you may write", message)


@pytest.mark.ci
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_template_in_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir(mode=0o444)
    message = refused("new", "prompt", "place/mine.jinja", cwd=tmp_path, run=ragen_obeying)
    assert message.startswith("error: place/mine.jinja cannot be written (Permission denied); choose a folder")


def test_unknown_environment(tmp_path: Path) -> None:
    assert "did you mean 'Sokoban'" in refused("play", "Sokobann", cwd=tmp_path)


@pytest.mark.parametrize("command", [("runs", "--store", ""), ("store", "copy", "mine", ""), ("runs",)])
def test_empty_address_is_no_default_store(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert "address is empty" in refused(*command, cwd=tmp_path, STARPO_STORE="" if len(command) == 1 else "store")


def test_mistyped_store_is_not_empty(tmp_path: Path) -> None:
    message = refused("runs", "--store", str(tmp_path / "typo"), cwd=tmp_path)
    assert f"no store was found at {tmp_path}/typo: there is no such folder" in message


def test_folder_of_other_files_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").touch()
    assert "no runs folder" in refused("runs", "--store", "letters", cwd=tmp_path)


def test_empty_store_is_valid(tmp_path: Path) -> None:
    result = ragen("runs", "--store", str(tmp_path), cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"no runs in {tmp_path} yet" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (("pack", "mine"), "starpo store copy"),
        (("validate", "sokoban-paper-starpo"), '["sokoban-paper", "starpo"]'),
        (("validate", "webshop", "--set", "environment.split_rule=original"), "the size of its split"),
    ],
)
def test_removed_setting_names_its_replacement(arguments: tuple[str, ...], instead: str, tmp_path: Path) -> None:
    result = ragen(*arguments, cwd=tmp_path)
    assert result.returncode != 0
    assert "was removed" in result.stderr
    assert instead in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device without space")
@pytest.mark.parametrize("arguments", [["--version"], ["envs"]])
def test_output_without_space_is_one_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*RAGEN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr.splitlines()) == (1, ["error: no space is left for standard output"])


def test_unwritable_report_hides_no_summary(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("a file, where a folder is expected")
    monkeypatch.setenv("STARPO_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(ConfigError, match="`starpo report mine --output FILE` writes it elsewhere"):
        conclude(Store(str(stored.parent.parent)), "mine", as_json=False)
    assert "starpo show mine" in capsys.readouterr().out
