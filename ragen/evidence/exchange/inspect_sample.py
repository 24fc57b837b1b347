"""A sample of a log of Inspect as a trace: its conversation, score, error or limit; an epoch is a member of its group.

    {"sample": {messages, scores, error, limit, ...}, "log": {task, scorer, ...}} -> Trace

The conversation is `messages`, as the log ends with: calls of other agents and of scorers are events, and not read.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from starpo.ragen.core.visible import quoted
from starpo.ragen.evidence.exchange.content import number_of
from starpo.ragen.evidence.exchange.inspect_process import is_verdict, score_of
from starpo.ragen.evidence.exchange.messages import turns_of
from starpo.ragen.evidence.exchange.trace import Trace, TraceFault

_OF_SCORE = ("value", "answer", "explanation", "metadata")
_OF_SAMPLE = ("target", "choices", "metadata", "model_usage", "stop_reason", "uuid", "started_at", "completed_at",
              "total_time", "working_time")  # fmt: skip
_OF_LOG = ("task", "model", "eval_id", "created", "scorer")


class InspectSample(NamedTuple):
    """A sample of an epoch as `inspect_process` writes it.

    Attributes:
        sample: The sample.
        log: What it says of the log.
    """

    sample: Mapping[str, Any]
    log: Mapping[str, Any]


def read_inspect(value: InspectSample) -> Trace:
    """Read the trajectory of a sample.

    Raises:
        TraceFault: If it has no response, was invalidated, or shows something else than texts and PNG images.
    """
    sample, log = value
    if sample.get("invalidation"):
        reason = (sample["invalidation"] or {}).get("reason")
        raise TraceFault(f"was invalidated{f': {reason}' if reason else ''}")
    messages = [_message(message) for message in sample["messages"]]
    error, limit = sample.get("error") or {}, sample.get("limit") or {}
    if error and not any(message["role"] == "assistant" and "weight" not in message for message in messages):
        raise TraceFault(f"has no response, because of an error: {str(error.get('message'))[:200]}")
    score = (sample.get("scores") or {}).get(log["scorer"]) or {}
    reward = number_of(score_of(score.get("value")), "score")
    is_judged = reward is not None and (is_verdict(score["value"]) or log["is_accuracy"])
    return Trace(
        f"{sample['id']}/{sample['epoch']}",
        str(sample["id"]),
        log["task"],
        turns_of(messages),
        reward,
        reward == 1.0 if is_judged else None,
        has_failed=bool(error),
        is_truncated=bool(limit) and not error,
        member=sample["epoch"] - 1,
        tools=[{"type": "function", "function": tool} for tool in sample.get("tools") or ()],
        metadata=_metadata(sample, log, error, limit),
        note=_note(log),
    )


def _metadata(sample: Mapping[str, Any], log: Mapping[str, Any], error: Any, limit: Any) -> dict[str, Any]:
    scores = {
        name: {part: score[part] for part in _OF_SCORE if score.get(part) is not None}
        for name, score in (sample.get("scores") or {}).items()
    }
    return {
        **{name: log[name] for name in _OF_LOG},
        "sample": sample["id"],
        "epoch": sample["epoch"],
        "scores": scores,
        **{name: sample[name] for name in _OF_SAMPLE if sample.get(name) not in (None, {}, [])},
        **({"error": error.get("message")} if error else {}),
        **({"limit": limit.get("type")} if limit else {}),
    }


def _note(log: Mapping[str, Any]) -> str:
    others = log["other_scorers"]
    kept = f"; scores of {', '.join(map(quoted, others))} are in info" if others else ""
    if log["scorer"] is None:
        return f"it has no scores that are numbers or verdicts, so that there are no rewards{kept}"
    return f"the reward is the score of {quoted(log['scorer'])}{kept}"


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of Inspect in OpenAI's form, with reasoning apart. One of an input is no response."""
    role, reasoning, parts = message["role"], [], []
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if part.get("type") == "reasoning":
            reasoning.append((part.get("summary") or "") if part.get("redacted") else part.get("reasoning") or "")
        elif part.get("type") == "image":
            parts.append({"type": "image_url", "image_url": {"url": part.get("image")}})
        else:
            parts.append(part)
    result: dict[str, Any] = {"role": role, "content": parts if isinstance(content, list) else content}
    if role == "tool":
        result |= {"tool_call_id": message.get("tool_call_id"), "name": message.get("function")}
        if error := message.get("error"):  # what the model is sent in place of a result
            result["content"] = error.get("message")
    if role != "assistant":
        return result
    result["tool_calls"] = [
        {
            "id": call.get("id"),
            "type": "function",
            "function": {"name": call.get("function"), "arguments": call.get("arguments")},
        }
        for call in message.get("tool_calls") or ()
    ]
    is_given = message.get("source") == "input"
    return {
        **result,
        **({"reasoning_content": "\n".join(reasoning)} if reasoning else {}),
        **({"weight": 0} if is_given else {}),
    }
