"""Imports become turns: tokens are exact if given and absent otherwise, and broken traces are set aside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.core.errors import ConfigError, DataError
from starpo.ragen.evidence.exchange import lines
from starpo.ragen.evidence.exchange.choosing import parse_choice
from starpo.ragen.evidence.exchange.exporting import export_run
from starpo.ragen.evidence.exchange.intake import Taken, take_in
from starpo.ragen.evidence.exchange.played import Recorded
from starpo.ragen.evidence.exchange.setting_aside import SetAside
from starpo.ragen.evidence.exchange.spool import Spool
from starpo.ragen.learning.conversations import conversations_of
from starpo.schemas.datasets import TURNS
from starpo.schemas.validate import validate
from tests.ragen.evidence.exchange.conftest import SMOKE, played_turns

FULL = SMOKE.agent.model_copy(update={"context": "full"})
WINDOW = SMOKE.agent.model_copy(update={"context": "window", "window_turns": 2})

TakeIn = Callable[..., tuple[pa.Table, SetAside, Taken]]


@pytest.fixture
def take(tmp_path: Path) -> TakeIn:
    """`take(path_or_values, form)`: import, and return the rows, what was set aside, and what was taken."""

    def run(source: Any, form: str, *, should_keep_groups: bool = True) -> tuple[pa.Table, SetAside, Taken]:
        path = source
        if not isinstance(source, Path):
            path = tmp_path / "given.jsonl"
            path.write_text("".join(f"{json.dumps(value)}\n" for value in source))
        scratch = tmp_path / f"scratch-{len(list(tmp_path.iterdir()))}"
        scratch.mkdir()
        aside = SetAside(scratch)
        with Spool(scratch / "turns.arrow") as spool:
            taken = take_in(path, form, spool, aside, should_keep_groups=should_keep_groups)
            table = pa.Table.from_batches(list(spool.batches()), schema=TURNS.schema)
        validate(table, "turns")
        return table, aside, taken

    return run


def node(parent: int | None, role: str, ids: list[int], mask: list[int] | None = None, **more: Any) -> dict[str, Any]:
    """Message of a trace; with a mask, a sampled one."""
    message = {"role": role, "content": f"{role} says {ids}"}
    sampled = {"sampled": True, "mask": mask, "logprobs": [-0.25] * sum(mask)} if mask else {}
    return {"parent": parent, "message": message, "token_ids": ids, **sampled, **more}


def episode(name: str = "e0", group: str = "g0", reward: float = 1.0, **trace: Any) -> dict[str, Any]:
    nodes = [
        node(None, "system", [1, 2]),
        node(0, "user", [3]),
        node(1, "assistant", [4, 5, 6, 7], [0, 1, 1, 0]),  # template opening, two sampled tokens, template closing
        node(2, "user", [8, 9]),
        node(3, "assistant", [10, 11], [1, 1]),
    ]
    whole = {"nodes": nodes, "rewards": {"solved": {"score": reward, "weight": 2.0}}, "is_completed": True, **trace}
    return {"id": name, "env": "maze", "group": {"id": group}, "traces": [{"id": name, **whole}]}


def test_verifiers_nodes_are_exact_context(take: TakeIn) -> None:
    calls = [{"node": 2, "finish_reason": "stop"}, {"node": 4, "finish_reason": "length"}]
    table, aside, taken = take([episode(calls=calls)], "verifiers")
    first, second = table.to_pylist()
    assert (first["prompt_ids"], first["response_ids"]) == ([1, 2, 3, 4], [5, 6])
    assert (second["prompt_ids"], second["response_ids"]) == ([7, 8, 9], [10, 11])  # 7 closes the previous response
    assert [row["behaviour_logprobs"] for row in (first, second)] == [[-0.25, -0.25]] * 2
    assert [row["is_context_start"] for row in (first, second)] == [True, False]
    assert [row["finish_reason"] for row in (first, second)] == ["stop", "length"]
    assert [row["action_rewards"] for row in (first, second)] == [[0.0], [2.0]]  # 1.0 times its weight, 2.0
    assert (taken, aside.num_traces) == (Taken(1, is_paid=True), 0)


def test_branch_starts_a_new_context(take: TakeIn) -> None:
    value = episode()
    nodes = value["traces"][0]["nodes"]
    nodes += [node(0, "user", [20]), node(5, "assistant", [21], [1])]
    rows = take([value], "verifiers")[0].to_pylist()
    assert [row["is_context_start"] for row in rows] == [True, False, True]
    assert (rows[2]["prompt_ids"], rows[2]["response_ids"]) == ([1, 2, 20], [21])


def test_absent_logprobs_and_tokens_stay_absent(take: TakeIn) -> None:
    values = [episode("a"), episode("b")]
    for place in (2, 4):
        del values[0]["traces"][0]["nodes"][place]["logprobs"]
    for part in values[1]["traces"][0]["nodes"]:
        for name in ("token_ids", "mask", "logprobs"):
            part.pop(name, None)
    rows = take(values, "verifiers")[0].to_pylist()
    assert [len(row["response_ids"]) for row in rows] == [2, 2, 0, 0]
    assert [len(row["behaviour_logprobs"]) for row in rows] == [0] * 4
    assert {row["finish_reason"] for row in rows} == {"unknown"}
    assert json.loads(rows[2]["info"])["imported"]["absent"] == [
        "env_seed", "dynamics_seed", "sampling_seed", "action_cost", "initial_state_digest", "state_digest",
        "format_ok", "prompt_ids", "response_ids", "behaviour_logprobs", "success",
    ]  # fmt: skip


def broken(change: Callable[[list[dict[str, Any]]], object]) -> dict[str, Any]:
    value = episode("broken", "g1")
    change(value["traces"][0]["nodes"])
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (broken(lambda nodes: nodes[1].update(parent=4)), "node 1 has the parent 4, expected one before it: a cycle"),
        (broken(lambda nodes: nodes[1].update(parent=1)), "a cycle"),
        (broken(lambda nodes: nodes[1].update(parent=True)), "has the parent True"),
        (broken(lambda nodes: nodes[2].update(mask=[1])), "has 4 token ids and a mask of 1"),
        (broken(lambda nodes: nodes[2].update(mask=[1, 0, 1, 0])), "a mask with gaps"),
        (broken(lambda nodes: nodes[2].update(logprobs=[-1.0])), "has 1 log-probs for 2 sampled tokens"),
        (broken(lambda nodes: nodes[2].update(logprobs=[-1.0, 0.5])), "log-probs are numbers from -104 to 0"),
        (broken(lambda nodes: nodes[2].update(token_ids=[4, -5, 6, 7])), "token ids are whole numbers from 0"),
        (broken(lambda nodes: nodes[2].update(token_ids="4567")), "token_ids is not a list"),
        (broken(lambda nodes: nodes[4].update(token_ids=[], mask=[], logprobs=[])), "some of its responses have token"),
        (broken(lambda nodes: nodes[3].update(mask=[1, 1])), "was not sampled, and its mask says that it was"),
        (broken(lambda nodes: nodes[0].update(message={"role": "root", "content": ""})), "is of the role 'root'"),
        (broken(lambda nodes: nodes[3]["message"].update(content=[{"type": "image_url"}])), "part of type 'image_url'"),
        (broken(lambda nodes: nodes[3].pop("token_ids")), "node 3 has no token ids, and responses have"),
        (broken(lambda nodes: nodes.clear()), "nodes is not a list of 1 to"),
        (episode("e0", "g1"), "has the id of a trace before it"),
        (episode("x", "g1", reward=1e301), "expected a number"),
        ({"traces": []}, "has neither traces nor nodes"),
        ([1], "is no JSON object"),
        (episode("half\ud800", "g1"), "does not fit the columns of 'turns'"),
    ],
)  # fmt: skip
def test_broken_trace_set_aside_others_taken(take: TakeIn, value: Any, reason: str) -> None:
    table, aside, taken = take([episode(), value], "verifiers")
    assert (taken.num_traces, aside.num_traces, table.num_rows) == (1, 1, 2)
    (line,) = aside.lines()
    assert reason in line


@pytest.mark.parametrize("ids", [[1], []], ids=["tokens", "no tokens"])
def test_small_trace_repetition_is_bounded(take: TakeIn, ids: list[int]) -> None:
    """Every branch repeats all messages of its path: this megabyte would become 80."""
    prompt = {**node(None, "user", ids), "message": {"role": "user", "content": "x" * 2**20}}
    response = node(0, "assistant", ids, [1] * len(ids), sampled=True)
    value = {"id": "wide", "nodes": [prompt, *[response] * 80]}
    table, aside, _ = take([value, episode()], "verifiers")
    assert set(table["trajectory_id"].to_pylist()) == {"e0"}
    assert "has more than 67108864 characters before its responses" in next(aside.lines())


def test_unreadable_lines_are_set_aside(take: TakeIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_PIECE_BYTES", 100_000)
    good = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    bad = [b"{", b"[" * 50_000, b"x" * 250_000, b'{"messages": NaN}', b"\xff\xfe", b"null", b'{"messages": 1}']
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b"\n".join([good.encode(), *bad, b"  ", good.encode()]))
    table, aside, taken = take(path, "messages")
    assert (taken.num_traces, aside.num_traces, table.num_rows) == (2, len(bad), 2)
    assert table["trajectory_id"].to_pylist() == ["odd.jsonl:1", "odd.jsonl:10"]


def test_odd_groups_set_aside_or_split(take: TakeIn) -> None:
    values = [episode(f"{group}{member}", group) for group in "abc" for member in range(1 if group == "c" else 2)]
    table, aside, _ = take(values, "verifiers")
    assert sorted(set(table["group_id"].to_pylist())) == ["a", "b"]
    assert "is of a group of another size than 2" in next(aside.lines())
    table, aside, taken = take(values, "verifiers", should_keep_groups=False)
    assert (taken.num_traces, aside.num_traces) == (5, 0)
    assert set(table["member"].to_pylist()) == {0}


def test_rewards_for_all_traces_or_none(take: TakeIn) -> None:
    unpaid = episode("b", "g1")
    del unpaid["traces"][0]["rewards"]
    _, aside, taken = take([episode("a"), unpaid], "verifiers")
    assert (taken, aside.num_traces) == (Taken(1, is_paid=True), 1)
    table, _, taken = take([unpaid], "verifiers")
    assert not taken.is_paid
    assert table["executed_actions"].to_pylist() == [[], []]


def test_failed_trace_needs_no_reward(take: TakeIn) -> None:
    """Its status leaves it out of every statistic: others' rewards do not make it incomplete."""
    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    failed = {"messages": talk, "status": "env_error"}
    table, aside, taken = take([{"messages": talk, "return": 1.0}, failed, {"messages": talk}], "messages")
    assert table["status"].to_pylist() == ["ok", "env_error"]
    assert (taken.is_paid, aside.num_traces) == (True, 1)


@pytest.mark.parametrize("agent", [FULL, WINDOW], ids=["full", "window"])
def test_atif_round_trip_is_exact(store, put_run, take: TakeIn, tmp_path: Path, agent) -> None:
    table = put_run(agent=agent)
    export_run(Recorded(store, "mine"), "atif", tmp_path / "out", parse_choice([]))
    turns, aside, taken = take(tmp_path / "out" / "iteration-00000", "atif")
    assert (aside.num_traces, taken.is_paid) == (0, True)
    assert turns.equals(table)


def test_changed_export_is_reported(store, put_run, take: TakeIn, tmp_path: Path) -> None:
    put_run(agent=FULL)
    export_run(Recorded(store, "mine"), "atif", tmp_path / "out", parse_choice([]))
    file = next((tmp_path / "out").rglob("*.json"))
    document = json.loads(file.read_text())
    document["steps"][1]["message"] = "another answer"
    file.write_text(json.dumps(document))
    _, aside, _ = take(tmp_path / "out" / "iteration-00000", "atif")
    assert any("was changed since it was exported" in line for line in aside.lines())


COLUMNS = ["trajectory_id", "group_id", "member", "env", "env_seed", "initial_state_digest", "turn", "response"]


@pytest.mark.ci
def test_messages_round_trip_keeps_contents(store, put_run, take: TakeIn, tmp_path: Path) -> None:
    table = put_run(agent=FULL)
    export_run(Recorded(store, "mine"), "messages", tmp_path / "out", parse_choice([]))
    turns, aside, _ = take(tmp_path / "out" / "iteration-00000.jsonl", "messages")
    assert aside.num_traces == 0
    assert turns.select(COLUMNS).equals(table.select(COLUMNS))
    assert turns.filter(turns["success"])["trajectory_id"].to_pylist() == ["g0/0000", "g0/0003"]
    # the import exported again: its observations are what the model was told, and stay the same
    put_run("again", FULL, turns)
    export_run(Recorded(store, "again"), "messages", tmp_path / "twice", parse_choice([]))
    assert (
        take(tmp_path / "twice" / "iteration-00000.jsonl", "messages")[0]
        .drop_columns("info")
        .equals(turns.drop_columns("info"))
    )


def test_partial_trajectory_is_set_aside(store, put_run, take: TakeIn, tmp_path: Path) -> None:
    put_run(agent=WINDOW)
    export_run(Recorded(store, "mine"), "messages", tmp_path / "out", parse_choice([]))
    turns, aside, taken = take(tmp_path / "out" / "iteration-00000.jsonl", "messages")
    assert (taken.num_traces, turns.num_rows, aside.num_traces) == (0, 0, 24)  # 8 trajectories, each of 3 turns
    (line,) = aside.lines()
    assert "is one of 3 contexts of a trajectory" in line


def test_how_a_trajectory_ended_comes_back(store, put_run, take: TakeIn, tmp_path: Path) -> None:
    """A trajectory that ended in an error must count in no statistic after the import. Members keep their numbers."""
    rows = played_turns(FULL, num_turns=1).to_pylist()[::-1]
    rows[0] |= {"status": "env_error", "truncated": False}
    table = put_run(agent=FULL, turns=pa.Table.from_pylist(rows, schema=TURNS.schema))
    export_run(Recorded(store, "mine"), "messages", tmp_path / "out", parse_choice([]))
    turns, _, _ = take(next((tmp_path / "out").iterdir()), "messages")
    columns = ["trajectory_id", "member", "status", "terminated", "truncated", "success"]
    assert turns.select(columns).equals(table.select(columns))


def test_success_without_reward_counts(take: TakeIn) -> None:
    line = {"prompt": "q", "completion": "a", "group_id": "g"}
    values = [{**line, "success": success} for success in (True, False, None)]
    turns, _, taken = take(values, "messages")
    assert not taken.is_paid
    assert turns["success"].to_pylist() == [True, False, False]
    absent = [set(json.loads(info)["imported"]["absent"]) & {"reward", "success"} for info in turns["info"].to_pylist()]
    assert absent == [{"reward"}, {"reward"}, {"reward", "success"}]


@pytest.mark.parametrize("think", ["hi", "think", ">"])
def test_answer_follows_the_reasoning(take: TakeIn, think: str) -> None:
    """The reasoning may be text that also occurs in its tags."""
    message = {"role": "assistant", "reasoning_content": think, "content": "yes"}
    table, _, _ = take([{"messages": [{"role": "user", "content": "q"}, message]}], "messages")
    assert (table["think"].to_pylist(), table["answer"].to_pylist()) == ([think], ["yes"])


@pytest.mark.parametrize("strange", [{"completion": 42}, {"completion": "a", "prompt": 7}])
def test_neither_text_nor_messages_set_aside(take: TakeIn, strange: dict[str, Any]) -> None:
    good = {"prompt": "q", "completion": "a", "reward": 1.0}
    table, aside, _ = take([good, {**good, **strange}], "messages", should_keep_groups=False)
    assert (table.num_rows, aside.num_traces) == (1, 1)
    (line,) = aside.lines()
    assert "part is neither text nor messages" in line


@pytest.mark.parametrize("strange", [{"env_seed": -1}, {"env_seed": 2**63}, {"initial_state_digest": "none"}])
def test_unstorable_first_state_set_aside(take: TakeIn, strange: dict[str, Any]) -> None:
    good = {"prompt": "q", "completion": "a", "reward": 1.0, "env_seed": 7}
    table, aside, _ = take([good, {**good, **strange}], "messages")
    assert table["env_seed"].to_pylist() == [7]
    (line,) = aside.lines()
    assert f"{next(iter(strange))} is" in line


def document(**changes: Any) -> dict[str, Any]:
    steps = [
        {"step_id": 1, "source": "system", "message": "be short"},
        {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "what is there?"}]},
        {
            "step_id": 3, "source": "agent", "message": "I look", "reasoning_content": "hm",
            "tool_calls": [{"tool_call_id": "1", "function_name": "ls", "arguments": {}}],
            "observation": {"results": [{"source_call_id": "1", "content": "a file"}]},
            "metrics": {"prompt_token_ids": [1, 2], "completion_token_ids": [3], "logprobs": [-0.5]},
        },
        {
            "step_id": 4, "source": "agent", "message": "a file",
            "metrics": {"prompt_token_ids": [1, 2, 3, 4], "completion_token_ids": [5], "logprobs": [-1.5]},
        },
    ]  # fmt: skip
    whole = {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "other"}, "steps": steps}
    return whole | changes


def test_foreign_atif_has_tokens_without_reward(take: TakeIn) -> None:
    table, _, taken = take([document()], "atif")
    first, second = table.to_pylist()
    assert (first["prompt_ids"], second["prompt_ids"], second["is_context_start"]) == ([1, 2], [4], False)
    assert (first["think"], second["observation"]) == ("hm", "a file")
    assert first["response"].startswith("<think>hm</think>I look\n{")
    assert not taken.is_paid


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (document(schema_version="ATIF-v2.0"), "has the schema_version 'ATIF-v2.0', expected ATIF-v1.0 to ATIF-v1.8"),
        (document(schema_version=None), "expected ATIF-v1.0"),
        (document(steps=document()["steps"][::-1]), "step 1 is not numbered so"),
        (document(steps=[{"step_id": 1, "source": "oracle", "message": ""}]), "has the source 'oracle'"),
        (document(steps=document()["steps"][:2]), "has no step of the agent"),
        (document(extra={"reward": "much"}), "reward is 'much', expected a number"),
        (document(extra={"ragen": {"env_seed": "seven"}}), "does not fit the columns of 'turns'"),
    ],
)
def test_broken_documents_are_set_aside(take: TakeIn, value: Any, reason: str) -> None:
    _, aside, taken = take([value], "atif")
    assert (taken.num_traces, aside.num_traces) == (0, 1)
    assert reason in next(aside.lines())


def test_named_symlinks_are_followed(take: TakeIn, tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside.json"
    folder.mkdir()
    outside.write_text(json.dumps(document(trajectory_id="outside")))
    (folder / "own.json").write_text(json.dumps(document(trajectory_id="own")))
    (folder / "link.json").symlink_to(outside)
    assert take(folder / "link.json", "atif")[0]["trajectory_id"].to_pylist() == ["outside"] * 2
    assert take(folder, "atif")[0]["trajectory_id"].to_pylist() == ["own"] * 2


def test_unreadable_document_is_an_error(take: TakeIn, tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("/proc/self/mem")  # a file that cannot be read from its start
    with pytest.raises(DataError, match=r"a.json: cannot be read \(Input/output error\)"):
        take(tmp_path / "a.json", "atif")


def test_an_unknown_format_is_named(take: TakeIn) -> None:
    with pytest.raises(ConfigError, match="'slime' is not an import format"):
        take([], "slime")


def test_messages_keep_chat_template_fields(take: TakeIn) -> None:
    """OpenAI's fine-tuning format of today and of old: calls, tools, weights, parts, reasoning."""
    look = {"name": "look", "parameters": {"type": "object"}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "short"}]},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "wrong", "weight": 0},
        {"role": "user", "content": "no"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "look", "arguments": json.dumps({"b": 1, "a": 2})}}]},
        {"role": "tool", "tool_call_id": "1", "content": "wall"},
        {"role": "assistant", "content": "a wall", "weight": 1},
    ]  # fmt: skip
    old = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "wall"},
        {"role": "assistant", "content": "a wall"},
    ]
    lines = [
        {"messages": messages, "tools": json.dumps([{"type": "function", "function": look}])},
        {"messages": old, "functions": [look]},
    ]
    table, aside, taken = take(lines, "messages")
    assert (taken.num_traces, aside.num_traces, table.num_rows) == (2, 0, 4)
    first, second = (
        conversations_of([row for row in table.to_pylist() if row["trajectory_id"] == name])[0]
        for name in ("given.jsonl:1", "given.jsonl:2")
    )
    assert [message["role"] for message in first.messages] == [
        "system", "user", "assistant", "user", "assistant", "tool", "assistant"
    ]  # fmt: skip
    assert (first.learned, first.messages[0]["content"]) == ([4, 6], "be short")
    call = {"type": "function", "id": "1", "function": {"name": "look", "arguments": {"b": 1, "a": 2}}}
    assert first.messages[4] == {
        "role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]
    }  # fmt: skip
    assert second.messages[1]["tool_calls"] == [{"type": "function", "function": {"name": "look", "arguments": {}}}]
    assert second.messages[2] == {"role": "tool", "name": "look", "content": "wall"}
    assert first.tools == second.tools == [{"type": "function", "function": look}]


def test_sharegpt_is_read(take: TakeIn) -> None:
    talk = [
        {"from": "human", "value": "q"},
        {"from": "function_call", "value": json.dumps({"name": "look", "arguments": {"to": "a"}})},
        {"from": "observation", "value": "wall"},
        {"from": "gpt", "value": "a wall"},
    ]
    line = {"conversations": talk, "system": "be short", "tools": json.dumps([{"name": "look"}])}
    table, aside, _ = take(
        [line, {"conversations": [*talk[:1], {"from": "function_call", "value": "look"}]}], "messages"
    )
    (conversation,) = conversations_of(table.to_pylist())
    assert [message["role"] for message in conversation.messages] == [
        "system", "user", "assistant", "tool", "assistant"
    ]  # fmt: skip
    assert conversation.messages[2]["tool_calls"][0]["function"] == {"name": "look", "arguments": {"to": "a"}}
    assert conversation.tools == [{"type": "function", "function": {"name": "look"}}]
    assert "a message from 'function_call' is not the JSON of a call" in next(aside.lines())


def test_text_export_keeps_calls_and_tools(store, put_run, take: TakeIn, tmp_path: Path) -> None:
    called = {"role": "assistant", "content": "", "reasoning_content": "hm",
              "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {"to": "a"}}}]}  # fmt: skip
    messages = [{"role": "user", "content": "q"}, called, {"role": "tool", "content": "wall"},
                {"role": "user", "content": "?"}, {"role": "assistant", "content": "no"}]  # fmt: skip
    line = {"messages": messages, "tools": [{"type": "function", "function": {"name": "look"}}]}
    turns, _, _ = take([line], "messages")
    put_run("again", FULL, turns)
    export_run(Recorded(store, "again"), "messages", tmp_path / "out", parse_choice([]))
    (exported,) = map(json.loads, next((tmp_path / "out").glob("*.jsonl")).read_text().splitlines())
    assert {name: exported[name] for name in line} == line


def test_foreign_calls_kept_without_tokens(take: TakeIn) -> None:
    without = document()
    for step in without["steps"]:
        step.pop("metrics", None)
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "ls", "arguments": "{}"}}]}
    nodes = [{"parent": None, "message": {"role": "user", "content": "q"}},
             {"parent": 0, "message": called, "sampled": True}]  # fmt: skip
    for source, form in ((without, "atif"), ({"id": "e", "nodes": nodes}, "verifiers")):
        (conversation,) = conversations_of(take([source], form)[0].to_pylist())
        (call,) = (message["tool_calls"][0] for message in conversation.messages if "tool_calls" in message)
        assert call["function"] == {"name": "ls", "arguments": {}}
