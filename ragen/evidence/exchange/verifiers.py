"""Traces of verifiers and prime-rl (`traces.jsonl`): a tree of messages, with the sampled tokens.

    episode {task, group, traces[]} | trace {nodes[{parent, message, sampled, token_ids, mask, logprobs}]} -> Trace

The path from the root to a sampled node is the exact context of its response: token ids, mask and log-probs are used
unchanged, and nothing is tokenised. A path that does not continue from the previous response starts a new context, as
with branches or a compacted context.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from starpo.ragen.evidence.exchange.content import (
    ChatMessage,
    assistant_parts,
    chat_message,
    message_of,
    name_of,
    number_of,
    response_of,
    text_of,
    tools_of,
)
from starpo.ragen.evidence.exchange.lines import Piece
from starpo.ragen.evidence.exchange.trace import MAX_TOKENS, Message, Trace, TraceFault, TraceTurn
from starpo.schemas.datasets import UNKNOWN_FINISH

MAX_NODES = 20_000
MAX_CHARACTERS = 2**26
"""Maximum number of characters before all responses of a trace, roles included: every branch repeats its path."""
_FINISH = {"stop": "stop", "tool_calls": "stop", "length": "length"}

Node = Mapping[str, Any]


class EpisodeTrace(NamedTuple):
    """A trace as its line holds it.

    Attributes:
        trace: The trace.
        episode: The line, which has its group, task and environment; the trace itself if it is a line of its own.
        name: Id to use if the trace has none.
    """

    trace: Any
    episode: Mapping[str, Any]
    name: str | None


def episode_traces(lines: Iterable[Piece]) -> Iterator[Piece]:
    """Split lines into their traces, each an `EpisodeTrace`; a line without traces becomes a piece with a fault."""
    for line in lines:
        value = line.value
        if line.fault:
            yield line
        elif not isinstance(value, Mapping):
            yield replace(line, value=None, fault="is no JSON object")
        elif "nodes" in value:
            yield replace(line, value=EpisodeTrace(value, value, None))
        elif not isinstance(traces := value.get("traces"), list) or not traces:
            yield replace(line, value=None, fault="has neither traces nor nodes")
        else:
            episode_id = name_of(value.get("id"))
            for number, trace in enumerate(traces):
                place = line.place if number == 0 else f"{line.place}/{number}"
                name = f"{episode_id}/{number}" if episode_id else None
                yield replace(line, place=place, value=EpisodeTrace(trace, value, name))


def read_verifiers(value: EpisodeTrace) -> Trace:
    """Read a trace.

    Raises:
        TraceFault: If it is broken.
    """
    trace, episode, name = value
    if not isinstance(trace, Mapping):
        raise TraceFault("is no JSON object")
    nodes = trace.get("nodes")
    if not isinstance(nodes, list) or not nodes or len(nodes) > MAX_NODES:
        raise TraceFault(f"nodes is not a list of 1 to {MAX_NODES} messages")
    _check_tree(nodes)
    task, group = episode.get("task") or trace.get("task"), episode.get("group")
    task = task if isinstance(task, Mapping) else {}
    stop = trace.get("stop_condition")
    return Trace(
        name_of(trace.get("id")) or name,
        name_of(group.get("id") if isinstance(group, Mapping) else group),
        str(episode.get("env") or task.get("type") or "verifiers"),
        _turns(nodes, _finish_reasons(trace)),
        _reward(trace),
        has_failed=trace.get("ok") is False or episode.get("ok") is False or bool(trace.get("errors")),
        is_truncated=trace.get("is_completed") is False or (isinstance(stop, str) and "max" in stop),
        tools=tools_of(trace) or tools_of(task),
    )


def _check_tree(nodes: list[Any]) -> None:
    for number, node in enumerate(nodes):
        if not isinstance(node, Mapping):
            raise TraceFault(f"node {number} is no JSON object")
        parent = node.get("parent")
        if parent is not None and (type(parent) is not int or not 0 <= parent < number):
            raise TraceFault(
                f"node {number} has the parent {str(parent)[:20]}, expected one before it: a cycle, or out of order"
            )
        ids, mask, logprobs = (_list(node, name, number) for name in ("token_ids", "mask", "logprobs"))
        if mask and len(mask) != len(ids):
            raise TraceFault(f"node {number} has {len(ids)} token ids and a mask of {len(mask)}")
        if not all(isinstance(item, bool) or item in (0, 1) for item in mask):
            raise TraceFault(f"node {number} has a mask that holds something else than true and false")
        if not node.get("sampled") and any(mask):
            raise TraceFault(f"node {number} was not sampled, and its mask says that it was")
        num_sampled = sum(map(bool, mask)) if mask else len(ids)
        if logprobs and len(logprobs) not in (num_sampled, len(ids)):
            raise TraceFault(f"node {number} has {len(logprobs)} log-probs for {num_sampled} sampled tokens")


def _turns(nodes: list[Node], finish: Mapping[int, str]) -> list[TraceTurn]:
    sampled = [number for number, node in enumerate(nodes) if node.get("sampled")]
    have_tokens = {bool(nodes[number].get("token_ids")) for number in sampled}
    if len(have_tokens) > 1:
        raise TraceFault("some of its responses have token ids, and some have none")
    is_exact = have_tokens == {True}
    message = cache(lambda place: _message(nodes[place], place))
    turns: list[TraceTurn] = []
    before: int | None = None
    num_characters = num_tokens = 0
    for number in sampled:
        path, goes_on = _path(nodes, number, before)
        messages = [message(place) for place in path]
        num_characters += sum(len(role) + len(text) for role, text in messages)
        if num_characters > MAX_CHARACTERS:
            raise TraceFault(f"has more than {MAX_CHARACTERS} characters before its responses")
        response, think = _response(nodes[number], number)
        prompt_ids, response_ids, logprobs = None, None, None
        if is_exact:
            silent = next((place for place in path if not nodes[place].get("token_ids")), None)
            if silent is not None:
                raise TraceFault(f"node {silent} has no token ids, and responses have: what the model saw is not known")
            lead, response_ids, logprobs = _sampled(nodes[number], number)
            after = _after(nodes[before]) if goes_on and before is not None else []
            prompt_ids = [*after, *(item for place in path for item in nodes[place].get("token_ids") or ()), *lead]
            num_tokens += len(prompt_ids)
            if num_tokens > MAX_TOKENS:
                raise TraceFault(f"has more than {MAX_TOKENS} tokens")
        turns.append(
            TraceTurn(
                messages,
                response,
                think,
                prompt_ids,
                response_ids,
                logprobs,
                is_context_start=not goes_on,
                finish_reason=finish.get(number, UNKNOWN_FINISH),
                chat=[*(chat_message(nodes[place]["message"]) for place in path), _assistant_message(nodes[number])],
            )
        )
        before = number
    return turns


def _path(nodes: list[Node], number: int, before: int | None) -> tuple[list[int], bool]:
    """Return the nodes before this one, from the root or the previous response, and whether it continues from that."""
    path: list[int] = []
    parent = nodes[number].get("parent")
    while parent is not None and parent != before:
        path.append(parent)
        parent = nodes[parent].get("parent")
    return path[::-1], parent is not None


def _sampled(node: Node, number: int) -> tuple[list[int], list[int], list[float] | None]:
    """Return the template tokens before the sampled tokens of a node, those tokens, and their log-probs."""
    ids, logprobs = list(node["token_ids"]), list(node.get("logprobs") or ())
    mask = [bool(item) for item in node.get("mask") or [True] * len(ids)]
    if True not in mask:
        raise TraceFault(f"node {number} was sampled, and its mask names no token")
    start, end = mask.index(True), len(mask) - mask[::-1].index(True)
    if not all(mask[start:end]):
        raise TraceFault(f"node {number} has a mask with gaps; a response is one run of tokens")
    if len(logprobs) == len(ids):
        logprobs = logprobs[start:end]
    return ids[:start], ids[start:end], logprobs or None


def _after(node: Node) -> list[int]:
    """Return the template tokens after the sampled tokens of a node."""
    mask = [bool(item) for item in node.get("mask") or ()]
    return list(node["token_ids"])[len(mask) - mask[::-1].index(True) :] if True in mask else []


def _message(node: Node, number: int) -> Message:
    if "message" not in node:
        raise TraceFault(f"node {number} has no message")
    return message_of(node["message"])


def _response(node: Node, number: int) -> tuple[str, str | None]:
    message = node.get("message")
    if isinstance(message, str):
        return text_of(message), None
    if not isinstance(message, Mapping):
        raise TraceFault(f"node {number} has no message")
    return response_of(*assistant_parts(message))


def _assistant_message(node: Node) -> ChatMessage:
    message = node["message"]
    return chat_message({"content": message} if isinstance(message, str) else message, "assistant")


def _finish_reasons(trace: Mapping[str, Any]) -> dict[int, str]:
    calls = trace.get("calls")
    entries = [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    return {
        call["node"]: _FINISH.get(str(call.get("finish_reason")), UNKNOWN_FINISH)
        for call in entries
        if type(call.get("node")) is int
    }


def _reward(trace: Mapping[str, Any]) -> float | None:
    """Return the weighted sum of scores (default weight 1); None without rewards, or if a score is missing."""
    rewards = trace.get("rewards")
    if not isinstance(rewards, Mapping) or not rewards:
        return number_of(trace.get("reward"), "reward")
    total = 0.0
    for name, value in rewards.items():
        scored = value if isinstance(value, Mapping) else {"score": value}
        score, weight = number_of(scored.get("score"), f"reward {name[:40]!r}"), scored.get("weight", 1.0)
        if score is None:
            return None
        factor = number_of(weight, f"weight of {name[:40]!r}")
        total += score * (1.0 if factor is None else factor)
    return total


def _list(node: Node, name: str, number: int) -> list[Any]:
    value = node.get(name)
    if value is not None and not isinstance(value, list):
        raise TraceFault(f"node {number}: {name} is not a list")
    return value or []
