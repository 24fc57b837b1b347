"""`starpo import`: external trajectories can be queried and audited; invalid input is kept in quarantine."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.ragen.core.errors import ConfigError, DataError, StoreError
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.evidence.report.words import embedded_words, facts
from starpo.ragen.runs.replay.plan import plan_replay
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from starpo.tasks.loop.verify import verify_run
from tests.examples import example_turns
from tests.flows.documents import check

KEEP_ALL = ("--set", "filter.strategy=none", "--set", "filter.should_drop_zero_variance=false")


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    pq.write_table(example_turns(3), tmp_path / "turns.parquet")
    return tmp_path / "turns.parquet"


def run_import(store: Store, *arguments: object) -> Any:
    return CliRunner().invoke(app, ["import", *map(str, arguments), "--store", store.url])


def refusal(store: Store, *arguments: object) -> str:
    result = run_import(store, *arguments)
    assert isinstance(result.exception, DataError | StoreError), result.output
    assert not (Path(store.url) / "runs" / "mine" / "iterations").exists()
    return str(result.exception)


@pytest.mark.ci
def test_every_form_gives_the_same_artifact(store: Store, parquet: Path, tmp_path: Path) -> None:
    table = pq.read_table(parquet)
    pa.feather.write_feather(table, tmp_path / "turns.feather")
    (tmp_path / "turns.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    files = [parquet, tmp_path / "turns.feather", tmp_path / "turns.jsonl"]
    result = run_import(store, "mine", *files, "--json")
    assert check("import", result.stdout) == {
        "run": "mine", "iterations": 3, "turns": 3 * table.num_rows, "traces": None, "set_aside": None
    }  # fmt: skip
    keys = {stages["rollout"]["turns"] for stages in store.runs.iterations("mine").values()}
    assert len(keys) == 1
    assert store.read_table("turns", keys.pop()).equals(example_turns(3))


def test_unknown_turn_field_is_named(store: Store, tmp_path: Path) -> None:
    rows = example_turns(1).to_pylist()
    rows[3]["my_note"] = {"seen": [1]}
    (tmp_path / "turns.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert "unknown: my_note." in refusal(store, "mine", tmp_path / "turns.jsonl")


@pytest.mark.ci
def test_imported_run_queried_and_audited(store: Store, parquet: Path) -> None:
    assert run_import(store, "mine", parquet, *KEEP_ALL).exit_code == 0
    query = "select count(*) n, bool_and(kept) kept from turns join selection using (group_id)"
    answer = CliRunner().invoke(app, ["sql", "mine", query, "--json", "--store", store.url])
    assert json.loads(answer.stdout) == [{"n": example_turns(3).num_rows, "kept": True}]
    audited = CliRunner().invoke(app, ["audit", "mine", "rewards", "--store", store.url])
    assert audited.exit_code == 0, audited.output


@pytest.mark.ci
def test_imported_run_names_its_unknowns(store: Store, parquet: Path) -> None:
    run_import(store, "mine", parquet)
    verdicts = {(finding.stage, finding.check): finding.verdict for finding in verify_run(store, "mine").findings}
    assert verdicts["reward", "rewards"] == verdicts["variance_filter", "selection"] == Verdict.SAME
    assert verdicts["rollout", "texts"] == Verdict.NOT_SHOWN
    with pytest.raises(ConfigError, match="'mine' holds imported trajectories, but no checkpoint"):
        plan_replay(store, "mine")


def test_unknown_format_is_refused(store: Store, parquet: Path, tmp_path: Path) -> None:
    (tmp_path / "turns.csv").write_text("a,b\n1,2\n")
    assert "trajectories are read from .parquet, " in refusal(store, "mine", tmp_path / "turns.csv")
    (tmp_path / "text.parquet").write_text("no Parquet")
    assert "text.parquet: is not Parquet: " in refusal(store, "mine", tmp_path / "text.parquet")
    (tmp_path / "text.jsonl").write_text("no JSON\n")
    assert "is not JSON lines of dataset 'turns': " in refusal(store, "mine", tmp_path / "text.jsonl")
    assert "there is no such file" in refusal(store, "mine", tmp_path / "absent.parquet")


def test_unexpected_columns_are_named(store: Store, tmp_path: Path) -> None:
    table = example_turns(3)
    other = table.rename_columns(["reply" if name == "response" else name for name in table.column_names])
    pq.write_table(other, tmp_path / "other.parquet")
    message = refusal(store, "mine", tmp_path / "other.parquet")
    assert "missing: response; unknown: reply" in message
    place = table.schema.get_field_index("turn")
    wrong = table.set_column(place, "turn", pa.array(["first"] * table.num_rows))
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    assert "column 'turn' is of type string, expected int32" in refusal(store, "mine", tmp_path / "wrong.parquet")


def test_invalid_rows_kept_in_quarantine(store: Store, parquet: Path, tmp_path: Path) -> None:
    table = example_turns(3)
    place = table.schema.get_field_index("turn")
    wrong = table.set_column(place, table.schema.field("turn"), pa.array([9] * table.num_rows, pa.int32()))
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    message = refusal(store, "mine", parquet, tmp_path / "wrong.parquet")
    assert "column 'turn' counts 0, 1, 2" in message
    (kept,) = (Path(store.url) / "quarantine").glob("turns-*/data.parquet")
    assert pq.read_table(kept)["turn"].to_pylist() == [9] * table.num_rows


def test_taken_name_is_refused(store: Store, parquet: Path) -> None:
    run_import(store, "mine", parquet)
    again = run_import(store, "mine", parquet, "--set", "filter.keep=0.75")
    assert isinstance(again.exception, StoreError)
    assert run_import(store, "mine", parquet).exit_code == 0, "the same again is the same run"


def test_other_content_same_names_other_run(store: Store, tmp_path: Path) -> None:
    """The files have the same name, and the second has no rewards: it must not get those of the first."""
    for folder, traces in (("a", [{"messages": CHAT, "reward": 1.0}] * 2), ("b", [{"messages": CHAT[:2]}])):
        (tmp_path / folder).mkdir()
        write_lines(tmp_path / folder / "chat.jsonl", traces)
    assert run_import(store, "mine", tmp_path / "a" / "chat.jsonl", "--format", "messages", *KEEP_ALL).exit_code == 0
    before = store.runs.iterations("mine")
    again = run_import(store, "mine", tmp_path / "b" / "chat.jsonl", "--format", "messages", *KEEP_ALL)
    assert isinstance(again.exception, StoreError)
    assert store.runs.iterations("mine") == before


def test_an_empty_file_is_no_run(store: Store, tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text("")
    assert "it contains no trajectory" in refusal(store, "mine", tmp_path / "chat.jsonl", "--format", "messages")


CHAT = [
    {"role": "user", "content": "which way?"}, {"role": "assistant", "content": "up"},
    {"role": "user", "content": "and now?"}, {"role": "assistant", "content": "down"},
]  # fmt: skip


def write_lines(file: Path, values: list[Any]) -> Path:
    file.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return file


def queried(store: Store, query: str, run: str = "mine") -> list[dict[str, Any]]:
    return json.loads(CliRunner().invoke(app, ["sql", run, query, "--json", "--store", store.url]).stdout)


@pytest.mark.ci
def test_text_only_import_lacks_token_columns(store: Store, tmp_path: Path) -> None:
    traces = [{"messages": CHAT, "group_id": "g", "reward": reward, "success": reward > 0} for reward in (1.0, 0.0)]
    file = write_lines(tmp_path / "chat.jsonl", [*traces, {"messages": [{"role": "user"}]}, "?"])
    result = run_import(store, "mine", file, "--format", "messages", *KEEP_ALL)
    assert result.exit_code == 0, result.output
    assert "1 set aside, such as 'chat.jsonl:3' has no message of the role 'assistant'" in result.stdout
    (kept,) = (Path(store.url) / "quarantine").glob("traces-*/data.parquet")
    assert pq.read_table(kept)["place"].to_pylist() == ["chat.jsonl:3", "chat.jsonl:4"]
    rows = queried(store, "select num_response_tokens, trajectory_return, success from trajectories order by member")
    assert rows == [
        {"num_response_tokens": None, "trajectory_return": 1.0, "success": True},
        {"num_response_tokens": None, "trajectory_return": 0.0, "success": False},
    ]
    names = [row["name"] for row in queried(store, "select name from metrics")]
    assert not {"rollout/entropy", "rollout/response_length_mean", "rollout/length_share"} & set(names)
    for command in (["audit", "mine"], ["report", "mine", "-o", str(tmp_path / "report.html")], ["diagnose", "mine"]):
        done = CliRunner().invoke(app, [*command, "--store", store.url])
        assert done.exit_code == 0, (command, done.output, done.exception)
    verdicts = {(finding.stage, finding.check): finding.verdict for finding in verify_run(store, "mine").findings}
    assert Verdict.DIFFERENT not in verdicts.values()


@pytest.mark.ci
def test_a_source_without_rewards_has_none(store: Store, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "chat.jsonl", [{"messages": CHAT}])
    paid = write_lines(tmp_path / "paid.jsonl", [{"messages": CHAT, "reward": 1.0}])
    assert run_import(store, "mine", file, paid, "--format", "messages", *KEEP_ALL).exit_code == 0
    assert list(store.runs.iteration("mine", 0)) == ["rollout"]
    assert "reward" in store.runs.iteration("mine", 1)
    query = "select iteration, trajectory_return from trajectories order by iteration"
    assert [row["trajectory_return"] for row in queried(store, query)] == [None, 1.0]
    assert verify_run(store, "mine").is_faultless
    assert CliRunner().invoke(app, ["audit", "mine", "--store", store.url]).exit_code == 0


def test_absent_source_fields_not_shown_failed(store: Store, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "chat.jsonl", [{"messages": CHAT}])
    assert run_import(store, "mine", file, "--format", "messages").exit_code == 0
    [row] = queried(store, "select distinct trajectory_id from turns")
    shown = ["show", "mine", "--iteration", "0", "--trajectory", row["trajectory_id"], "--store", store.url]
    text = CliRunner().invoke(app, shown).stdout
    assert "whether the goal was reached is not recorded" in text
    assert "0 tokens" not in text
    [batch] = gather(store, "mine").rollouts
    [group] = json.loads(gzip.decompress(batch.packed))["groups"]
    assert (group["reason"], group["members"][0]["success"]) == ("", None)
    assert "have no pictures: they were played elsewhere." in embedded_words(gather(store, "mine"))[0]


@pytest.mark.ci
def test_import_without_preset_states_applied_settings(store: Store, tmp_path: Path) -> None:
    """The settings that it was made with are known to nobody; those of a default would pass for them in reports."""
    file = write_lines(tmp_path / "chat.jsonl", [{"messages": CHAT, "group_id": "g", "reward": n} for n in (0.0, 1.0)])
    assert run_import(store, "mine", file, "--format", "messages", *KEEP_ALL).exit_code == 0
    assert run_import(store, "named", file, "--format", "messages", *KEEP_ALL, "--preset", "sokoban").exit_code == 0
    made_with = {"Environment", "Policy", "Advantage", "Seed"}
    plain, stated = (dict(facts(gather(store, run))) for run in ("mine", "named"))
    assert made_with.isdisjoint(plain)
    assert made_with <= stated.keys()
    assert (plain["Iterations"], plain["Preset"], stated["Preset"]) == ("1 of 1", "none", "sokoban")
    shown = CliRunner().invoke(app, ["show", "mine", "--json", "--store", store.url])
    [row] = queried(store, "select preset, config from runs")
    assert json.loads(shown.stdout)["config"].keys() == json.loads(row["config"]).keys() == {"reward", "filter"}
    assert row["preset"] is None
    page = render_report(gather(store, "mine"))
    assert "filter.strategy" in page
    assert "update.advantage" not in page
    assert verify_run(store, "mine").is_faultless


@pytest.mark.ci
def test_unknown_malformedness_is_not_invented(store: Store, tmp_path: Path) -> None:
    texts = ["<think>up is free</think>up", "", "up"]
    traces = [
        {"messages": [CHAT[0], {"role": "assistant", "content": text}], "group_id": "g", "reward": float(bool(text))}
        for text in texts
    ]
    file = write_lines(tmp_path / "chat.jsonl", traces)
    assert run_import(store, "mine", file, "--format", "messages", *KEEP_ALL).exit_code == 0
    names = {row["name"] for row in queried(store, "select name from metrics")}
    assert "rollout/success_rate" in names
    assert not {"rollout/format_ok", "reward/malformed_return_gap"} & names
    assert queried(store, "select distinct num_format_errors n from trajectories") == [{"n": None}]
    assert [row["think"] for row in queried(store, "select think from turns order by member")] == [
        "up is free",
        None,
        None,
    ]
    audit = CliRunner().invoke(app, ["audit", "mine", "formats", "--json", "--store", store.url])
    assert (audit.exit_code, "0.3333" in audit.stdout) == (0, False), audit.output
    [batch] = gather(store, "mine").rollouts
    [group] = json.loads(gzip.decompress(batch.packed))["groups"]
    assert [member["errors"] for member in group["members"]] == [None] * 3


def test_all_unsound_imports_nothing(store: Store, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "chat.jsonl", [1, 2])
    message = refusal(store, "mine", file, "--format", "messages")
    assert "2 traces could not be imported:\n2 set aside, such as 'chat.jsonl:1' is no JSON object" in message
    assert "are kept in " in message


def test_export_is_imported_again(store: Store, parquet: Path, tmp_path: Path) -> None:
    run_import(store, "mine", parquet)
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["export", "mine", "--format", "atif", "-o", str(out), "--store", store.url])
    assert done.stdout == f"12 documents of 12 trajectories (of 12, 1 iterations) in {out}\n"
    assert run_import(store, "again", out / "iteration-00000", "--format", "atif").exit_code == 0
    keys = [store.runs.iteration(run, 0)["rollout"]["turns"] for run in ("mine", "again")]
    assert keys[0] == keys[1], "the same rows are the same artifact"


@pytest.mark.ci
def test_whole_export_keeps_its_iterations(store: Store, parquet: Path, tmp_path: Path) -> None:
    pq.write_table(example_turns(2), tmp_path / "other.parquet")
    run_import(store, "mine", parquet, tmp_path / "other.parquet")
    out = tmp_path / "out"
    CliRunner().invoke(app, ["export", "mine", "--format", "atif", "-o", str(out), "--store", store.url])
    (out / "README.md").write_text("a card")
    assert "run again: 2 iterations" in run_import(store, "again", out, "--format", "atif").output
    assert rollouts(store, "again") == rollouts(store, "mine")
    assert store.runs.get("again").parameters["files"] == ["iteration-00000", "iteration-00001"]


def test_foreign_folders_are_one_iteration(store: Store, tmp_path: Path) -> None:
    for name, beside in {"trial-1": None, "iteration-00000": "trial-1"}.items():
        document = {
            "schema_version": "ATIF-v1.4", "trajectory_id": name, "session_id": name, "agent": {"name": "a"},
            "steps": [
                {"step_id": 1, "source": "user", "message": "which way?"},
                {"step_id": 2, "source": "agent", "message": "up"},
            ],
        }  # fmt: skip
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "trajectory.json").write_text(json.dumps(document))
        run = f"beside-{beside}"
        assert run_import(store, run, tmp_path / "out", "--format", "atif").exit_code == 0
        assert list(store.runs.iterations(run)) == [0]
    assert queried(store, "select count(distinct trajectory_id) n from turns", "beside-trial-1") == [{"n": 2}]


def rollouts(store: Store, run: str) -> list[str]:
    return [stages["rollout"]["turns"] for _, stages in sorted(store.runs.iterations(run).items())]
