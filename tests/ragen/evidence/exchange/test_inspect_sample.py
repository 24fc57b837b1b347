"""A sample of Inspect becomes a trace; its log says which scorer's score is the reward."""

import sys
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.core.errors import DataError, MissingPackageError
from starpo.ragen.evidence.exchange import inspect_log
from starpo.ragen.evidence.exchange.inspect_log import inspect_python, inspect_samples
from starpo.ragen.evidence.exchange.inspect_process import choose_scorer, is_verdict, score_of
from starpo.ragen.evidence.exchange.inspect_sample import InspectSample, read_inspect
from starpo.ragen.evidence.exchange.trace import TraceFault, rows_of

LOG = {
    "status": "success", "error": None, "task": "shop", "model": "mockllm/model", "eval_id": "e", "created": "today",
    "scorer": "includes", "other_scorers": ["num_calls"], "is_accuracy": False,
}  # fmt: skip
TOOL = {"name": "price", "description": "Look up a price.", "parameters": {"type": "object", "properties": {}}}


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "source": "generate" if role == "assistant" else None, **more}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "function": name, "arguments": arguments, "type": "function", "parse_error": None}


def sample(*messages: dict[str, Any], value: Any = "C", **more: Any) -> InspectSample:
    conversation = messages or (message("user", "What does tea cost?"), message("assistant", "3"))
    scores = {"includes": {"value": value, "answer": "3"}, "num_calls": {"value": 2}}
    fields = {"id": "tea", "epoch": 2, "messages": list(conversation), "scores": scores, "tools": [TOOL], **more}
    return InspectSample(fields, LOG)


def test_sample_is_a_member_of_group() -> None:
    trace = read_inspect(sample())
    assert (trace.name, trace.group, trace.member, trace.env) == ("tea/2", "tea", 1, "shop")
    assert (trace.reward, trace.success) == (1.0, True)
    assert trace.note == "the reward is the score of 'includes'; scores of 'num_calls' are in info"
    assert trace.metadata["scores"] == {"includes": {"value": "C", "answer": "3"}, "num_calls": {"value": 2}}
    assert trace.tools == [{"type": "function", "function": TOOL}]
    (row,) = rows_of(trace, "", "inspect")
    assert '"metadata": {"task": "shop"' in row["info"]


@pytest.mark.parametrize(
    ("value", "reward", "success"),
    [("C", 1.0, True), ("I", 0.0, False), ("P", 0.5, False), (True, 1.0, True), ("no", 0.0, False), (0.7, 0.7, None),
     (1, 1.0, None), ("nan", None, None), ("7", 7.0, None), ({"a": 1}, None, None)],
)  # fmt: skip
def test_score_becomes_reward_and_success(value: Any, reward: float | None, success: bool | None) -> None:
    trace = read_inspect(sample(value=value))
    assert (trace.reward, trace.success) == (reward, success)


def test_metric_accuracy_makes_verdicts() -> None:
    value = sample(value=1.0)
    assert read_inspect(value._replace(log={**LOG, "is_accuracy": True})).success is True


def test_calls_results_and_reasoning_kept() -> None:
    thought = [
        {"type": "reasoning", "reasoning": "I look it up.", "redacted": False},
        {"type": "reasoning", "reasoning": "c2VjcmV0", "redacted": True, "summary": "Briefly."},
        {"type": "text", "text": "Wait."},
    ]
    failure = {"type": "unknown", "message": "there is no tea"}
    trace = read_inspect(
        sample(
            message("system", "You sell."),
            message("user", "Tea?"),
            message("assistant", thought, tool_calls=[call("price", item="tea")]),
            message("tool", "", tool_call_id="c1", function="price", error=failure),
            message("assistant", "None left."),
        )
    )
    first, second = trace.turns
    assert first.think == "I look it up.\nBriefly."
    assert first.chat[-1] == {
        "role": "assistant", "content": "Wait.", "reasoning_content": "I look it up.\nBriefly.",
        "tool_calls": [{"type": "function", "id": "c1", "function": {"name": "price", "arguments": {"item": "tea"}}}],
    }  # fmt: skip
    assert second.messages == [("tool", "there is no tea")]
    assert second.chat[0] == {"role": "tool", "content": "there is no tea", "name": "price", "tool_call_id": "c1"}


def test_given_answers_are_no_responses() -> None:
    example = message("assistant", "2") | {"source": "input"}
    trace = read_inspect(sample(message("user", "Milk?"), example, message("user", "Tea?"), message("assistant", "3")))
    assert [turn.response for turn in trace.turns] == ["3"]


def test_error_and_limit_end_trace() -> None:
    failed = read_inspect(sample(error={"message": "RuntimeError('late')"}, limit={"type": "time"}))
    assert (failed.has_failed, failed.is_truncated, failed.metadata["limit"]) == (True, False, "time")
    limited = read_inspect(sample(limit={"type": "token", "limit": 100.0}))
    assert (limited.has_failed, limited.is_truncated) == (False, True)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (sample(message("user", "Tea?"), error={"message": "no scale"}), "has no response, because of an error: no"),
        (sample(message("user", "Tea?")), "has no message of the role 'assistant'"),
        (sample(invalidation={"reason": "a wrong price"}), "was invalidated: a wrong price"),
        (sample(value=1e307), "expected a number"),
        (sample(message("user", [{"type": "audio", "audio": "x"}])), "a part of type 'audio'"),
        (sample(message("user", [{"type": "image", "image": "http://x/y.png"}])), "an image has the URL 'http://x"),
        (sample(message("user", "?"), message("assistant", [{"type": "tool_use"}])), "a part of type 'tool_use'"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken(value: InspectSample, reason: str) -> None:
    with pytest.raises(TraceFault, match=reason):
        read_inspect(value)


def test_scorer_of_numbers_is_chosen() -> None:
    scored = [{"grade": "A", "parts": {"x": 1}, "judge": "nan"}, {"grade": "C", "parts": {"x": 0}, "judge": 0.5}]
    assert choose_scorer(["grade", "parts", "judge"], scored) == "judge"
    assert choose_scorer(["grade"], [{"grade": "A"}]) is None
    assert choose_scorer([], [{"later": "I"}]) == "later"
    assert choose_scorer(["match"], [{}, {}]) is None


def test_numbers_of_any_size() -> None:
    assert [score_of(value) for value in (10**400, "1e999", None, [], "-2", False)] == [None] * 4 + [-2.0, 0.0]
    assert not is_verdict(1)


def test_absent_inspect_gives_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STARPO_INSPECT_PYTHON", str(tmp_path / "python"))
    with pytest.raises(MissingPackageError, match=r"there is no .*python' \(STARPO_INSPECT_PYTHON\); reading logs of"):
        inspect_python()
    monkeypatch.delenv("STARPO_INSPECT_PYTHON")
    monkeypatch.setattr(inspect_log, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackageError, match="install it in an environment of its own"):
        inspect_python()


def test_interpreter_without_inspect_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STARPO_INSPECT_PYTHON", sys.executable)
    (tmp_path / "log.eval").write_bytes(b"")
    with pytest.raises(DataError, match=r"log.eval: .* cannot read it \(ModuleNotFoundError: No module named 'inspect"):
        list(inspect_samples(tmp_path / "log.eval"))
    with pytest.raises(DataError, match=r"is no log of Inspect, expected a name that ends in .eval or .json"):
        list(inspect_samples(tmp_path / "log.txt"))
