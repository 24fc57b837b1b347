"""Exports of a stored run contain what the model saw, and overwrite nothing."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.exchange.choosing import parse_choice, parse_iterations
from starpo.ragen.evidence.exchange.destination import file_name
from starpo.ragen.evidence.exchange.exporting import Export, export_run
from starpo.ragen.evidence.exchange.hub_folder import HubFolder
from starpo.ragen.evidence.exchange.played import Played, Recorded
from starpo.schemas.datasets import NO_RESPONSE, TURNS
from tests.ragen.evidence.exchange.conftest import SMOKE, TOKENIZER, played_turns

WINDOW = SMOKE.agent.model_copy(update={"context": "window", "window_turns": 2})
FULL = SMOKE.agent.model_copy(update={"context": "full"})
PREFILLED = FULL.model_copy(update={"should_prefill_think": True})
SYSTEM = WINDOW.model_copy(update={"system_prompt": "You walk."})


def exported(store, folder: Path, form: str, where: tuple[str, ...] = (), run: str = "mine", **options) -> Export:
    return export_run(Recorded(store, run), form, folder, parse_choice(list(where)), **options)


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("agent", [FULL, WINDOW, PREFILLED, SYSTEM], ids=["full", "window", "prefilled", "system"])
def test_messages_rendered_by_the_template_are_the_tokens_that_the_model_saw(store, put_run, tmp_path, agent):
    table = put_run(agent=agent)
    exported(store, tmp_path / "out", "messages")
    rows = table.to_pylist()
    found = lines(tmp_path / "out" / "iteration-00000.jsonl")
    contexts: list[list[int]] = []
    for row in rows:
        if row["is_context_start"]:
            contexts.append([])
        contexts[-1] += row["prompt_ids"] + row["response_ids"]
    newline = TOKENIZER.encode("\n")  # the template ends every message with one
    for line, ids in zip(found, contexts, strict=True):
        assert TOKENIZER.apply_chat_template(line["messages"], return_dict=False) == ids + newline


def test_a_window_marks_the_responses_that_it_repeats(store, put_run, tmp_path):
    put_run(agent=WINDOW)
    exported(store, tmp_path / "out", "messages")
    found = lines(tmp_path / "out" / "iteration-00000.jsonl")[:3]
    said = [[part for part in line["messages"] if part["role"] == "assistant"] for line in found]
    assert [[part.get("weight") for part in parts] for parts in said] == [[None], [0, None], [0, None]]
    assert [line["turns"] for line in found] == [[0, 0], [1, 1], [2, 2]]


def test_what_a_window_repeats_is_told_once(store, put_run, tmp_path):
    put_run(agent=WINDOW)
    exported(store, tmp_path / "verl", "verl")
    line = lines(tmp_path / "verl" / "0.jsonl")[0]
    said = "<think>the box is above</think><answer>Up</answer>"
    assert (line["input"], line["output"]) == ("P _ O 0", "\n".join([said, "P _ O 0", said, "P _ O 0", said]))
    exported(store, tmp_path / "atif", "atif")
    document = json.loads(min((tmp_path / "atif").rglob("*.json")).read_text())
    assert [step["source"] for step in document["steps"]] == ["user", "agent"] * 3


def test_a_turn_without_a_response_says_nothing_to_verl(store, put_run, tmp_path):
    rows = played_turns(PREFILLED, num_turns=2).to_pylist()
    for row in rows:
        if row["turn"] == 1:
            row |= NO_RESPONSE | {"status": "timeout", "terminated": False, "truncated": True, "success": False}
    put_run(agent=PREFILLED, turns=pa.Table.from_pylist(rows, schema=TURNS.schema))
    exported(store, tmp_path / "out", "verl")
    assert lines(tmp_path / "out" / "0.jsonl")[0]["output"] == "<think>the box is above</think><answer>Up</answer>"


def test_a_choice_is_of_success_filter_and_return(store, put_run, tmp_path):
    put_run(agent=FULL)
    counts = {
        where: exported(store, tmp_path / str(number), "messages", (where,)).num_chosen
        for number, where in enumerate(("success", "kept", "return>=0.2", "return<0", "valid"))
    }
    # only group 0 has variance; returns 1 and 0.25 succeed, six are -0.5
    assert counts == {"success": 2, "kept": 4, "return>=0.2": 2, "return<0": 6, "valid": 8}


@pytest.mark.parametrize("text", ["", "won", "return=1", "return>=", "return>=nan"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ConfigError, match="is not a condition on trajectories"):
        parse_choice([text])


def test_iterations_are_numbers_and_ranges():
    assert parse_iterations("0-2, 7") == {0, 1, 2, 7}
    for text in ("", "a", "3-1", "1,,2"):
        with pytest.raises(ConfigError, match="names no iterations"):
            parse_iterations(text)


def test_pairs_are_of_a_group_by_return(store, put_run, tmp_path):
    put_run(agent=FULL)
    exported(store, tmp_path / "out", "preferences")
    found = lines(tmp_path / "out" / "iteration-00000.jsonl")
    # by return: 0 (1), 3 (0.25), 1 and 2 (-0.5); the other group's returns are equal
    assert [line["chosen_id"] for line in found] == ["g0/0000", "g0/0003"]
    assert [line["rejected_id"] for line in found] == ["g0/0002", "g0/0001"]
    assert [part["role"] for part in found[0]["chosen"]] == ["assistant", "user"] * 2 + ["assistant"]
    exported(store, tmp_path / "first", "preferences", extent="first")
    (first, _) = lines(tmp_path / "first" / "iteration-00000.jsonl")
    assert first["prompt"] == found[0]["prompt"]
    assert [part["content"] for part in (*first["chosen"], *first["rejected"])] == [
        "<think>the box is above</think><answer>Up</answer>",
        "<think>the box is left</think><answer>Up</answer>",
    ]


def test_greedy_members_and_returns_that_differ_by_rounding_alone_form_no_pair(store, put_run, tmp_path):
    summed = 0.1 + 0.2  # not 0.3
    rows = played_turns(FULL, ((0.3, summed, 1.0), (summed, 0.3, 1.0))).to_pylist()
    for row in rows:
        row["origin"] = "greedy" if row["member"] == 2 else "policy"
    put_run(agent=FULL, turns=pa.Table.from_pylist(rows, schema=TURNS.schema))
    with pytest.raises(ConfigError, match="they give no pair of different returns"):
        exported(store, tmp_path / "out", "preferences")
    counts = [exported(store, tmp_path / str(n), "verl", (f"return{sign}0.3",)).num_chosen
              for n, sign in enumerate((">=", "<=", ">"))]  # fmt: skip
    assert counts == [6, 4, 2]


def test_pairs_of_windows_are_of_first_turns(store, put_run, tmp_path):
    put_run(agent=WINDOW)
    with pytest.raises(ConfigError, match="in 3 contexts, so it is not one conversation"):
        exported(store, tmp_path / "out", "preferences")
    assert exported(store, tmp_path / "out", "preferences", extent="first").num_written == 2


def test_nothing_is_overwritten_and_a_failure_leaves_nothing(store, put_run, tmp_path):
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


def test_a_datasets_folder_has_conversations_and_the_rows_themselves(store, put_run, tmp_path):
    table = put_run(agent=FULL)
    exported(store, tmp_path / "out", "datasets")
    turns = pq.read_table(tmp_path / "out" / "turns" / "train-00000.parquet")
    assert turns.cast(table.schema).equals(table)
    conversations = pq.read_table(tmp_path / "out" / "trajectories" / "train-00000.parquet")
    assert conversations["return"].to_pylist() == pytest.approx([1.0, -0.5, -0.5, 0.25, -0.5, -0.5, -0.5, -0.5])
    assert (tmp_path / "out" / "README.md").read_text().startswith('---\nconfigs: [{"config_name": "trajectories"')


def test_an_iteration_of_a_datasets_folder_is_closed_before_the_next_one_is_opened(tmp_path):
    """Otherwise a run of 510 iterations would exceed most systems' limit of open files, and hold all rows in memory."""
    rows = played_turns(FULL, num_turns=1).to_pylist()[:1]
    with HubFolder(tmp_path, "mine") as hub:
        for iteration in range(2):
            hub.add(Played(iteration, rows, None, None, [[]]))
        for kind in ("turns", "trajectories"):
            assert pq.read_table(tmp_path / kind / "train-00000.parquet").num_rows == 1


def test_a_reused_rollout_is_written_once(store, put_run, tmp_path):
    put_run(agent=FULL)
    store.runs.record_stage("mine", 1, "rollout", store.runs.iteration("mine", 0)["rollout"])
    done = exported(store, tmp_path / "out", "verl")
    assert (done.num_written, done.reused) == (8, [1])
    first = lines(tmp_path / "out" / "0.jsonl")[0]
    assert (first["score"], first["step"], first["gts"]) == (1.0, 0, None)
    assert first["output"].count("<answer>Up</answer>") == 3
