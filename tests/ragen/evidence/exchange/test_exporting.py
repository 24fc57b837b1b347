"""Exports of a stored run contain what the model saw, and overwrite nothing."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.exchange.choosing import parse_choice, parse_iterations
from starpo.ragen.evidence.exchange.destination import file_name
from starpo.ragen.evidence.exchange.exporting import Export, export_run
from starpo.ragen.evidence.exchange.played import Recorded
from starpo.schemas.datasets import TURNS
from tests.ragen.evidence.exchange.conftest import SMOKE, TOKENIZER, played_turns

WINDOW = SMOKE.agent.model_copy(update={"context": "window", "window_turns": 2})
FULL = SMOKE.agent.model_copy(update={"context": "full"})
PREFILLED = FULL.model_copy(update={"should_prefill_think": True})
SYSTEM = WINDOW.model_copy(update={"system_prompt": "You walk."})


def exported(store, folder: Path, form: str, where: tuple[str, ...] = (), run: str = "mine") -> Export:
    return export_run(Recorded(store, run), form, folder, parse_choice(list(where)))


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.ci
@pytest.mark.parametrize("agent", [FULL, WINDOW, PREFILLED, SYSTEM], ids=["full", "window", "prefilled", "system"])
def test_rendered_messages_equal_seen_tokens(store, put_run, tmp_path, agent):
    table = put_run(agent=agent)
    exported(store, tmp_path / "out", "messages")
    rows = table.to_pylist()
    exported_lines = lines(tmp_path / "out" / "iteration-00000.jsonl")
    contexts: list[list[int]] = []
    for row in rows:
        if row["is_context_start"]:
            contexts.append([])
        contexts[-1] += row["prompt_ids"] + row["response_ids"]
    newline = TOKENIZER.encode("\n")  # the template ends every message with one
    for line, ids in zip(exported_lines, contexts, strict=True):
        assert TOKENIZER.apply_chat_template(line["messages"], return_dict=False) == ids + newline


def test_window_marks_repeated_responses(store, put_run, tmp_path):
    put_run(agent=WINDOW)
    exported(store, tmp_path / "out", "messages")
    exported_lines = lines(tmp_path / "out" / "iteration-00000.jsonl")[:3]
    responses = [[part for part in line["messages"] if part["role"] == "assistant"] for line in exported_lines]
    assert [[part.get("weight") for part in parts] for parts in responses] == [[None], [0, None], [0, None]]
    assert [line["turns"] for line in exported_lines] == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.ci
def test_choice_by_success_filter_and_return(store, put_run, tmp_path):
    put_run(agent=FULL)
    counts = {
        where: exported(store, tmp_path / str(number), "messages", (where,)).num_chosen
        for number, where in enumerate(("success", "kept", "return>=0.2", "return<0", "valid"))
    }
    # only group 0 has variance; returns 1 and 0.25 succeed, six are -0.5
    assert counts == {"success": 2, "kept": 4, "return>=0.2": 2, "return<0": 6, "valid": 8}


def test_rounding_returns_are_equal(store, put_run, tmp_path):
    summed = 0.1 + 0.2  # not 0.3
    put_run(agent=FULL, turns=played_turns(FULL, ((0.3, summed, 1.0), (summed, 0.3, 1.0))))
    counts = [exported(store, tmp_path / str(n), "messages", (f"return{sign}0.3",)).num_chosen
              for n, sign in enumerate((">=", "<=", ">"))]  # fmt: skip
    assert counts == [6, 4, 2]


def test_export_overwrites_nothing_fails_cleanly(store, put_run, tmp_path):
    put_run(agent=FULL)
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="already exists"):
        exported(store, tmp_path / "out", "messages")
    with pytest.raises(ConfigError, match="nothing to export: 0 of 8 trajectories were chosen"):
        exported(store, tmp_path / "none", "messages", ("return>=9",))
    assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match="run mine has no rollout at the iterations asked for; it has 0 to 0"):
        export_run(Recorded(store, "mine", {7}), "messages", tmp_path / "none", parse_choice([]))
    assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match="not an export format"):
        exported(store, tmp_path / "none", "csv")


@pytest.mark.parametrize("form", ["messages", "atif"])
def test_folder_appears_only_when_complete(store, put_run, tmp_path, monkeypatch, form):
    put_run(agent=FULL)
    with monkeypatch.context() as killed:
        killed.setattr(Path, "rename", lambda *_: None)
        exported(store, tmp_path / "out", form)
    assert not (tmp_path / "out").exists()
    assert exported(store, tmp_path / "out", form).num_written > 0


def test_ids_lead_no_file_astray(store, put_run, tmp_path):
    rows = played_turns(FULL, ((1.0, 0.0),)).to_pylist()
    for row in rows:
        row["trajectory_id"] = f"../../{'x' * 300}\n{row['member']}"
    put_run(agent=FULL, turns=pa.Table.from_pylist(rows, schema=TURNS.schema))
    exported(store, tmp_path / "deep" / "out", "atif")
    files = [file for file in tmp_path.rglob("*.json") if "store" not in file.parts and "policy-mine" not in file.parts]
    assert {file.parent for file in files} == {tmp_path / "deep" / "out" / "iteration-00000"}
    assert len(files) == 2
    assert file_name(3, "/") == "000003-trajectory-8a5edab2.json"


def test_a_reused_rollout_is_written_once(store, put_run, tmp_path):
    put_run(agent=FULL)
    store.runs.record_stage("mine", 1, "rollout", store.runs.iteration("mine", 0)["rollout"])
    done = exported(store, tmp_path / "out", "messages")
    assert (done.num_written, done.reused) == (8, [1])
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["iteration-00000.jsonl"]
    assert [line["iteration"] for line in lines(tmp_path / "out" / "iteration-00000.jsonl")] == [0] * 8


@pytest.mark.parametrize("text", ["", "won", "return=1", "return>=", "return>=nan"])
def test_invalid_condition_is_refused(text):
    with pytest.raises(ConfigError, match="is not a condition on trajectories"):
        parse_choice([text])


def test_iterations_are_numbers_and_ranges():
    assert parse_iterations("0-2, 7") == {0, 1, 2, 7}
    for text in ("", "a", "3-1", "1,,2"):
        with pytest.raises(ConfigError, match="names no iterations"):
            parse_iterations(text)
