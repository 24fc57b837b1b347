"""Every command that prints has `--json`, and what it prints then is what `starpo schema` says."""

import json
import math
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from starpo.flows.cli.commands import COMMANDS, load
from starpo.flows.console.documents.forms import FORMS, form_of
from starpo.flows.console.documents.runs import MetricValue
from starpo.flows.console.terminal import as_json_value, json_text
from starpo.flows.outcome import Outcome
from starpo.ragen.store import Store
from starpo.ragen.studies.studies import Ablations, Sweeps
from tests.examples import example
from tests.flows.command import ragen
from tests.flows.documents import check
from tests.flows.hostile import FAILED, RUN, write_hostile_store
from tests.flows.hostile_results import hostile_ablation, hostile_sweep

WITHOUT = {
    "play": "a person plays, with the keyboard",
    "demo": "shown to a person; programs have `train demo --local --json`",
}
"""Commands without `--json`, and why."""
SKILL = files("starpo.flows.cli") / "templates" / "skill"
TRAJECTORY = str(example("turns")["trajectory_id"][0])
CASES = [
    "runs", "runs --tree", f"show {RUN}", f"show {RUN} --timings", f"show {RUN} --iteration 0",
    f"show {RUN} --iteration 0 --trajectory {TRAJECTORY}", f"compare {RUN} {FAILED}", f"diagnose {RUN}",
    f"sql {RUN} select(1)", "sql --views", f"audit {RUN}", "audit --list", f"lineage {RUN}:0:rollout",
    f"report {RUN} --no-audits", f"cancel {RUN}", f"follow {RUN}", f"export {RUN} --format messages -o exported",
    "import made turns.parquet", "store gc --dry-run --ignore-missing", "store du", "store verify",
    f"store forget {FAILED} --yes", f"store copy {RUN} copied", "evaluate --list", "evaluate --result told",
    "evaluate random --on Bandit --dry-run", "ablate --list", "ablate told --result", "ablate filter-keep --dry-run",
    "plan smoke", "validate smoke", "validate smoke --settings", "presets", "presets --methods", "envs",
    "new agent --framework openai --folder a", "new environment stairs --folder b", "new prompt c.jinja",
    "new experiment --questions questions.jsonl -o d.toml", "skill", "schema",
]  # fmt: skip
ELSEWHERE = {
    "train": "test_ten_questions", "fork": "test_ten_questions", "fork --settings": "test_ten_questions",
    "credit": "../integration/test_credit", "credit --verify": "../integration/test_credit",
    "verify": "test_ten_questions", "objectives": "test_ten_questions", "checkpoint": "test_ten_questions",
    "checkpoint --iteration": "test_ten_questions", "record": "test_record", "view": "test_view_command",
    "up": "../integration/test_local_server", "down": "test_down", "replay": "../integration/test_replay",
}  # fmt: skip
"""Documents that need a run with a policy, or a server, and the file that checks them."""


def leaves() -> Iterator[tuple[str, Any]]:
    for name in (name for panel in COMMANDS.values() for name in panel):
        command = load(name)
        inner = getattr(command, "commands", None)
        yield from ((f"{name} {sub}", of) for sub, of in inner.items()) if inner else ((name, command),)


def test_every_command_has_json() -> None:
    has_json = {name: any("--json" in option.opts for option in command.params) for name, command in leaves()}
    assert {name for name, has in has_json.items() if not has} == set(WITHOUT)
    assert {form.partition(" --")[0] for form in FORMS} == set(has_json) - set(WITHOUT)


def test_forms_are_chosen_by_options() -> None:
    options = {name: {word for option in command.params for word in option.opts} for name, command in leaves()}
    for form in FORMS:
        command, *chosen = form.split(" --")
        assert {f"--{option}" for option in chosen} <= options[command], form


def test_every_document_is_checked() -> None:
    assert {form_of(case.split()) for case in CASES}.isdisjoint(ELSEWHERE)
    assert {form_of(case.split()) for case in CASES} | set(ELSEWHERE) == set(FORMS)
    for form, file in ELSEWHERE.items():
        text = (Path(__file__).parent / f"{file}.py").read_text(encoding="utf-8")
        assert re.search(rf'(check\(|ask\(shell, )\s*"{form}"', text), f"{file}.py does not check '{form}'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a store whose texts are hostile, and a file to import."""
    folder = tmp_path_factory.mktemp("documents")
    store = folder / "store"
    write_hostile_store(store)
    Ablations(str(store)).save(hostile_ablation("told"))
    Sweeps(str(store)).save(hostile_sweep("told"))
    Store(str(store)).runs.forget("broken")
    pq.write_table(example("turns"), folder / "turns.parquet")
    questions = [json.dumps({"question": f"{n} + 1?", "answer": str(n + 1)}) for n in range(100)]
    (folder / "questions.jsonl").write_text("\n".join(questions))
    return folder


@pytest.mark.parametrize("case", CASES)
def test_document_is_as_its_schema(case: str, folder: Path) -> None:
    done = ragen(*case.split(), "--json", cwd=folder, STARPO_STORE=str(folder / "store"), STARPO_STATE_DIR="state")
    lines = done.stdout.splitlines() if case.startswith("follow") else [done.stdout]
    assert lines, done.stderr
    for line in lines:
        check(form_of(case.split()), line)


def test_numbers_are_kept_or_null() -> None:
    values = [MetricValue(name="x", value=value) for value in (0.1 + 0.2, math.nan, math.inf)]
    assert [json.loads(json_text(as_json_value(value)))["value"] for value in values] == [0.1 + 0.2, None, None]


def test_credentials_reach_no_document(folder: Path) -> None:
    for words in (
        ["validate", "smoke", "--set", "rollout.openai.base_url=http://me:hunter22@host/v1"],
        ["runs", "--store", "s3://me:hunter22@bucket/store"],
    ):
        done = ragen(*words, "--json", cwd=folder)
        assert (done.returncode, done.stdout, "hunter22" in done.stderr) == (1, "", False)


def test_followed_lines_are_news(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three looks finds nothing new; the last line says how it ended, as does the exit code."""
    outcomes = iter([None, None, Outcome("failed", "no memory")])
    monkeypatch.setattr("starpo.flows.console.follow._outcome", lambda *_: next(outcomes))
    monkeypatch.setattr("starpo.flows.console.follow.POLL_S", 0.0)
    store = Store(str(folder / "store"))
    store.runs.create("mine", flow="starpo", preset=None, config={"environment": {"type": "sokoban"}})
    store.runs.set_state("mine", "running", "update", {"iteration": 1})
    done = ragen("follow", "mine", "--json", STARPO_STORE=store.url)
    first, last = (check("follow", line) for line in done.stdout.splitlines())
    assert (first["state"], first["numbers"], first["is_over"]) == ("running", {"iteration": 1}, False)
    assert (last["state"], last["activity"], last["is_over"]) == ("failed", "no memory", True)
    assert (done.returncode, "ended as failed: no memory" in done.stderr) == (1, True)


def test_skill_names_what_exists() -> None:
    options = {name: {word for option in command.params for word in option.opts} for name, command in leaves()}
    text = "".join(file.read_text(encoding="utf-8") for file in SKILL.iterdir())
    named = re.findall(r"`starpo ([^`]+)`", text)
    assert len(named) > 20
    for command in named:
        words = re.sub(r'"[^"]*"', "", command).split()
        place = next(name for name in (" ".join(words[:2]), words[0]) if name in options)
        assert {word for word in words if word.startswith("--")} <= options[place], command


def test_skill_is_kept_unless_forced(tmp_path: Path) -> None:
    target = tmp_path / "skill"
    first = check("skill", ragen("skill", str(target), "--json").stdout)
    assert first["files"] == first["new"] == [str(target / f"{name}.md") for name in ("SKILL", "questions", "verdicts")]
    assert check("skill", ragen("skill", str(target), "--json").stdout)["new"] == []
    (target / "SKILL.md").write_text("mine")
    refused = ragen("skill", str(target))
    assert (refused.returncode, "--force" in refused.stderr) == (1, True)
    assert (target / "SKILL.md").read_text() == "mine"
    assert check("skill", ragen("skill", str(target), "--force", "--json").stdout)["new"] == [str(target / "SKILL.md")]


def test_skill_is_short_and_described() -> None:
    _, header, body = (SKILL / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(header)
    assert (fields["name"], len(fields["description"]) < 1024) == ("starpo", True)
    assert len(body.split()) < 800


def test_unknown_document_is_refused(tmp_path: Path) -> None:
    done = ragen("schema", "sho")
    assert (done.returncode, done.stdout) == (1, "")
    assert "did you mean 'show'" in done.stderr
    assert set(json.loads(ragen("schema", "store").stdout)) == {form for form in FORMS if form.startswith("store ")}
