"""Hostile text in every field of a store that holds text: no command outputs it raw, and none ends with a traceback."""

import json
import logging
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.flows import cli
from starpo.flows.cli.commands import COMMANDS, load
from starpo.flows.console.documents.forms import form_of
from starpo.flows.console.follow import RunFailedError, follow_run
from starpo.flows.console.terminal import Console
from starpo.flows.logs import _Record
from starpo.flows.outcome import Outcome
from starpo.ragen.core.visible import quoted, shortened, visible
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.studies.studies import Ablations, Sweeps
from starpo.schemas.manifest import Stage
from tests.examples import example
from tests.flows import command as in_process
from tests.flows.documents import check
from tests.flows.hostile import (
    BROKEN,
    FAILED,
    FAMILY,
    HOSTILE,
    RUN,
    assert_nothing_raw,
    write_hostile_store,
)  # fmt: skip
from tests.flows.hostile_results import hostile_ablation, hostile_sweep


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    write_hostile_store(folder)
    Ablations(str(folder)).save(hostile_ablation("told"))
    Sweeps(str(folder)).save(hostile_sweep("told"))
    return folder


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


Ragen = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ragen(store: Path, tmp_path: Path) -> Ragen:
    def run(*arguments: str) -> tuple[int, str, str]:
        places = {"STARPO_STORE": str(store), "STARPO_STATE_DIR": str(tmp_path / "state")}
        done = in_process.ragen(*arguments, COLUMNS="120", **places)
        return done.returncode, done.stdout, done.stderr

    return run


EVIL = "".join(HOSTILE[:9])
TRAJECTORY = str(example("turns")["trajectory_id"][0])
HELP = ["--help"]
ARGUMENTS: dict[str, tuple[list[list[str]], list[list[str]]]] = {  # what ends with exit code 0, and what does not
    "train": ([], [["smoke", "--run", RUN], [EVIL], ["smoke", "--set", f"filter.keep={EVIL}"]]),
    "skill": ([["{out}/skill"], ["{out}/skill", "--json"]], [["/dev/null/x"]]),
    "schema": ([[], ["--json"], ["show"]], [[EVIL]]),
    "demo": ([HELP], []),  # trains, for a minute
    "up": ([HELP], []),  # starts a server, and reads no store
    "view": ([HELP], []),  # serves pages, which tests/ragen/evidence/view looks at
    "down": ([[]], []),
    "cancel": ([[RUN], [FAILED], [BROKEN]], [[EVIL]]),
    "follow": ([[RUN], [BROKEN]], [[FAILED]]),
    "runs": ([[], ["--json"], ["--tree"], ["--tree", "--json"]], []),
    "fork": ([], [
        [RUN, "--from", "0", "--json"], [RUN, "--from", "0", "--set", f"filter.keep={EVIL}"], [EVIL, "--from", "0"],
    ]),
    "diagnose": ([[RUN], [RUN, "--json"]], [[BROKEN], [EVIL], [RUN, "-o", "{out}/plane.svg"]]),
    "show": ([
        [RUN], [RUN, "--json"], [RUN, "--iteration", "0"], [RUN, "--iteration", "0", "--json"],
        [RUN, "--timings"], [RUN, "--timings", "--json"], [BROKEN, "--timings"],
        [RUN, "--iteration", "0", "--trajectory", TRAJECTORY],
        [RUN, "--iteration", "0", "--trajectory", TRAJECTORY, "--json"],
    ], [[BROKEN], [RUN, "--iteration", "0", "--trajectory", EVIL]]),
    "report": ([[RUN, "-o", "{out}/report.html"], [BROKEN]], []),
    "compare": (
        [[RUN, FAILED], [RUN, FAILED, "--json"], [RUN, "-o", "{out}/c.svg"]], [[RUN, "-o", EVIL], [RUN, BROKEN]],
    ),
    "verify": ([], [[RUN, "--stage", "rollout"], [BROKEN], [RUN, "--stage", "rollout", "--json"]]),
    "replay": ([], [[RUN], [RUN, "--set", EVIL], [BROKEN]]),
    "checkpoint": ([], [[RUN], [BROKEN], [RUN, "--json"]]),
    "objectives": ([], [[RUN], [RUN, "--with", EVIL], [BROKEN]]),
    "credit": ([], [[RUN], [RUN, "--groups", EVIL], [BROKEN], [RUN, "--json"], [RUN, "--verify"]]),
    "ablate": (
        [["--list"], ["--list", "--json"], ["told", "--result"], ["told", "--result", "--json"]],
        [["evil", "--result"], [EVIL, "--dry-run"]],
    ),
    "evaluate": (
        [["--list"], ["--list", "--json"], ["--result", "told"], ["--result", "told", "--json"]],
        [
            ["--result", "evil"], [RUN, "--dry-run"], [RUN], [RUN, "--set", f"{EVIL}=1"], [BROKEN], [EVIL],
            ["random", "--on", EVIL], [f"{EVIL}@http://127.0.0.1:9/v1", "--on", "Bandit"],
        ],
    ),
    "plan": ([["smoke", "--json"]], [[EVIL], ["smoke", "--gpu-memory", EVIL], ["smoke", "--speed-of", EVIL]]),
    "sql": ([
        [RUN, "select response, think, info from turns"], [RUN, "select response, info from turns", "--json"],
        [RUN, "select name, value from metrics"],
        [RUN, "select config from runs"], [RUN, f"select '{EVIL}'"], [RUN, "select reason from selection"],
        [RUN, "select stage from artifacts"], [RUN, "select response from turns", "--csv", "{out}/x.csv"], ["--views"],
    ], [[RUN, EVIL]]),
    "audit": ([[RUN], [RUN, "--json"], ["--list"]], [[RUN, EVIL]]),
    "lineage": ([[f"{RUN}:0:rollout"], [f"{RUN}:0:rollout", "--json"]], [[EVIL]]),
    "record": ([], [
        ["new", "--policy", EVIL, "--", "python"], ["new", "--policy", EVIL, "--reward", EVIL, "--", EVIL],
    ]),
    "import": ([], [
        ["new", "{evil_file}"], ["new", EVIL], ["other", "{evil_file}", "--format", "messages"],
        ["more", "{evil_file}", "--format", EVIL],
    ]),
    "export": ([
        [RUN, "--format", "messages", "-o", "{out}/messages"], [RUN, "--format", "atif", "-o", "{out}/atif", "--json"],
    ], [
        [RUN, "--format", EVIL, "-o", "{out}/x"], [RUN, "--format", "atif", "-o", "{out}/x", "--where", EVIL],
        [BROKEN, "--format", "messages", "-o", "{out}/y"],
        [RUN, "--format", "messages", "-o", "{out}/z", "--panel", EVIL],
    ]),
    "validate": (
        [["smoke", "--json"]], [[EVIL], ["smoke", "--method", EVIL], ["smoke", "--set", f"iterations={EVIL}"]],
    ),
    "presets": ([[], ["--json"], ["--methods"], ["--methods", "--json"]], []),
    "new agent": ([], [["--framework", EVIL], ["--framework", "openai", "--folder", f"{{out}}/{EVIL}"]]),
    "new environment": ([], [[EVIL], ["stairs", "--folder", f"{{out}}/{EVIL}"]]),
    "new experiment": ([], [["--model", EVIL, "--environment", "bandit"], ["--model", "x", "--environment", EVIL]]),
    "new prompt": ([], [[EVIL], [f"{{out}}/{EVIL}.jinja"]]),
    "envs": ([[], ["--json"]], []),
    "play": ([], [[EVIL]]),
    "store gc": ([["--dry-run"], ["--dry-run", "--json"]], [["--min-age", EVIL]]),
    "store du": ([[], ["--json"]], []),
    "store verify": ([], [[], ["--json"]]),
    "store copy": ([[RUN, "{out}/copy"], [RUN, "{out}/other", "--json"]], [[BROKEN, "{out}/broken"]]),
    "store forget": ([[BROKEN, "--yes"], [RUN, "--yes"]], []),
}  # fmt: skip
REFUSE_BROKEN = {"lineage", "store gc", "store du"}
"""Commands that read all runs and end at the first that is broken."""


def leaves() -> Iterator[str]:
    for name in (name for panel in COMMANDS.values() for name in panel):
        inner = getattr(load(name), "commands", None)
        yield from (f"{name} {command}" for command in inner) if inner else (name,)


def test_every_command_is_here() -> None:
    assert set(leaves()) == set(ARGUMENTS)


@pytest.mark.ci
@pytest.mark.parametrize("command", ARGUMENTS)
def test_output_holds_no_raw_control_characters(
    command: str, ragen: Ragen, original: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the terminal, which is coloured, and on pages; data are exported as they are."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    places = {"{out}": str(tmp_path), "{evil_file}": str(next(original.parent.glob("a*.parquet")))}
    if command in REFUSE_BROKEN:
        shutil.rmtree(store / "runs" / BROKEN)
    obeyed, refused = ARGUMENTS[command]
    for arguments in (*obeyed, *refused):
        given = [
            re.sub(r"\{\w+\}", lambda match: places[match[0]], part) if "{" in part else part for part in arguments
        ]
        status, out, err = ragen(*command.split(), *given)
        assert "Traceback" not in err, err
        assert (status == 0) == (arguments in obeyed), err
        assert_nothing_raw(out + err)
        assert status or all(Path(part).exists() for part in given if part.startswith(str(tmp_path)))
        if "--json" in arguments and status == 0:
            check(form_of([*command.split(), *given]), out)
    for page in [*tmp_path.glob("*.html"), *tmp_path.glob("*.svg")]:
        content = page.read_text(encoding="utf-8")
        assert_nothing_raw(re.sub("long(long)+", "", content)[:2_900_000])
        assert "<script>alert(1)" not in content
        assert "<img src=x" not in content


@pytest.mark.parametrize(
    ("command", "arguments"), [("ablate", ["told", "--result"]), ("evaluate", ["--result", "told"])]
)
def test_a_stored_result_is_shown(command: str, arguments: list[str], ragen: Ragen) -> None:
    status, out, err = ragen(command, *arguments)
    assert (status, "hidden" in out) == (0, True), err


@pytest.mark.parametrize("is_terminal", [False, True])
def test_active_run_is_followed(store: Path, is_terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    opened = Store(str(store))
    opened.runs.set_state(RUN, "running", f"here {EVIL}", {"iteration": 1, "iterations": 2, EVIL: 1.0})
    outcomes = iter([None, Outcome("failed", EVIL)])
    with pytest.raises(RunFailedError):
        follow_run(opened, RUN, Console(force_terminal=is_terminal), lambda: next(outcomes))
    out = capsys.readouterr().out
    assert "iteration 1/2" in out
    assert_nothing_raw(out)


def test_damaged_run_hides_no_other(ragen: Ragen, store: Path) -> None:
    for file in (store / "episodes").glob("*/manifest.json"):
        file.write_text("{")
    rows = {row["run"]: row for row in json.loads(ragen("runs", "--json")[1])}
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys((RUN, FAILED, BROKEN), "damaged")
    assert "run.json" in rows[BROKEN]["fault"] or "00000.json" in rows[BROKEN]["fault"]
    status, out, _ = ragen("runs")
    assert status == 0
    assert f"{BROKEN} is damaged: " in out


def test_missing_success_is_reported(tmp_path: Path, make_run: Callable[..., object], ragen: Ragen) -> None:
    other = Store(str(tmp_path / "other"))
    make_run(other, "mine")
    stage = Stage(name="evaluate", version=1)
    key = stage_key(stage, {}, {}, 0)
    other.put_table("episodes", example("episodes"), Facts(key=key, stage=stage, settings={}, inputs={}, seed=0))
    other.runs.record_stage("mine", 0, "evaluate:sokoban", {"episodes": key})
    (row,) = json.loads(ragen("runs", "--json", "--store", other.url)[1])
    assert row["state"] == "damaged"
    assert "lacks the success on sokoban" in row["fault"]


def test_an_import_without_rows_is_refused(ragen: Ragen, tmp_path: Path) -> None:
    pq.write_table(example("turns").slice(0, 0), tmp_path / "empty.parquet")
    status, _, err = ragen("import", "new", str(tmp_path / "empty.parquet"))
    assert (status, "has no rows" in err) == (1, True)


def test_ten_megabytes_are_shown_at_once(ragen: Ragen, tmp_path: Path) -> None:
    table = example("turns")
    responses = table["response"].to_pylist()
    long = pa.array([f"{responses[0]}{'word ' * 2_000_000}"[:10_000_000], *responses[1:]])
    table = table.set_column(table.schema.get_field_index("response"), table.schema.field("response"), long)
    other, stage = Store(str(tmp_path / "other")), Stage(name="rollout", version=1)
    key = stage_key(stage, {}, {}, 0)
    other.put_table("turns", table, Facts(key=key, stage=stage, settings={}, inputs={}, seed=0))
    other.runs.create("mine", flow="starpo", preset="smoke", config={"environment": {"type": "sokoban"}})
    other.runs.record_stage("mine", 0, "rollout", {"turns": key})
    for command in (
        ["show", "mine", "--iteration", "0", "--trajectory", TRAJECTORY],
        ["sql", "mine", "select response from turns"],
    ):
        started = time.monotonic()
        _, out, _ = ragen(*command, "--store", other.url)
        assert time.monotonic() - started < 10  # once took two minutes
        assert "10,000,000 characters in all" in " ".join(out.replace("│", " ").split())
        assert len(out) < 200_000
        assert command[0] == "sql" or "long texts are cut; --json shows them in full" in out


def test_wrong_value_quoted_without_password(ragen: Ragen) -> None:
    _, _, err = ragen("validate", "smoke", "--set", f"filter.keep={'x' * 5_000_000}")
    assert len(err) < 1000
    assert "5,000,002 characters" in err
    _, _, err = ragen("validate", "smoke", "--set", "rollout.openai.base_url=http://me:hunter22@host/v1")
    assert "hunter22" not in err
    assert "http://***@host/v1" in err


@pytest.mark.ci
def test_a_question_is_bounded(ragen: Ragen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_SQL_TIMEOUT_S", "0.5")
    _, _, err = ragen("sql", RUN, "select count(*) from range(100000000000)")
    assert "stopped after 0.5 s" in err
    assert "STARPO_SQL_TIMEOUT_S" in err
    monkeypatch.setenv("STARPO_SQL_TIMEOUT_S", "60")
    monkeypatch.setenv("STARPO_SQL_MEMORY_GB", "0.1")
    monkeypatch.setenv("STARPO_SQL_SPILL_GB", "0.01")
    _, _, err = ragen("sql", RUN, "select len(list(repeat(hash(r)::varchar, 30))) from range(1000000) t(r)")
    assert "STARPO_SQL_MEMORY_GB" in err


def test_visible_characters_stay() -> None:
    text = f"Grüße, 你好\u3000, 5\u00a0€, naïve\n\ttab {FAMILY} \u2764\ufe0f\u200d\U0001f525"
    assert visible(text) == text
    assert visible("a\u200db\x9b") == "a\ufffdb\ufffd"
    assert shortened("x" * 99, 40).startswith("x" * 30 + " ... [99 characters in all]")
    assert shortened("x" * 50, 40) == "x" * 50
    assert quoted("a" * 10, 5) == "'aaaa... (12 characters)"


def test_commands_print_through_terminal_module() -> None:
    """Every command prints through `flows/console/terminal.py` only."""
    folder = Path(cli.__file__).parents[1]
    others = re.compile(
        r"rich\.console import .*\bConsole\b|rich\.markup|(?<!\.)\bprint\(|typer\.echo|json\.dumps\(.*indent"
    )
    for file in folder.rglob("*.py"):
        if file.name != "terminal.py":
            assert not others.search(file.read_text()), f"{file}: print through flows/console/terminal.py"


def test_log_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7")
    try:
        raise ConnectionError("proxy http://me:hunter2@proxy:3128 refused; key wJalrXUtnFEMIK7")
    except ConnectionError:
        record = _Record("a", logging.ERROR, "f", 1, "it failed: %s", ("wJalrXUtnFEMIK7",), sys.exc_info())
    shown = logging.Formatter().format(record)
    assert "it failed: ***" in shown
    assert "http://***@proxy:3128 refused; key ***" in shown
    assert not {"hunter2", "wJalrXUtnFEMIK7"} & set(re.split(r"\W", shown))
