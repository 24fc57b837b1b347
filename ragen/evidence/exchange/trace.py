"""A trajectory of another system, and the rows of `turns` that it becomes.

    ATIF | verifiers | messages -> Trace -> rows -> spool

Data missing in the source stays missing and is never invented: without tokens, `prompt_ids`, `response_ids` and
`behaviour_logprobs` are empty and `finish_reason` is 'unknown'; without log-probs, `behaviour_logprobs` is empty and
`finish_reason` is 'unknown'. `info` lists what else is missing, and there are no rewards if the source has none. A
response counts as one action, so that a reward can be assigned to its turn; whether its own system would have called it
well formed is not known, so that no statistic counts its `format_ok`.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starpo.ragen.agents.vision.image import PlacedImage
from starpo.schemas.checks import MAX_VOCABULARY, MIN_LOGPROB
from starpo.schemas.datasets import UNKNOWN_FINISH
from starpo.schemas.imported import FORMAT, imported_info
from starpo.schemas.texts import text_facts

Row = dict[str, Any]
Message = tuple[str, str]
"""(role, text)."""

MAX_TURNS = 10_000
"""Maximum number of turns of a trace."""
MAX_TOKENS = 2**24
"""Maximum number of tokens in all prompts and responses of a trace."""

_ACTION_CHARACTERS = 60
_NEVER_TOLD = (
    "env_seed",
    "dynamics_seed",
    "sampling_seed",
    "action_cost",
    "initial_state_digest",
    "state_digest",
    FORMAT,
)
"""Columns without a counterpart in other systems; their values only distinguish groups and states, or fit the rules of
`turns`."""
_LEADING_THINK = re.compile(r"<think>(.+?)</think>", re.DOTALL)


class TraceFault(ValueError):  # noqa: N818 (it is data that has the fault)
    """Raised for a fault of one trace of a file; other traces are unaffected."""


@dataclass(frozen=True)
class TraceTurn:
    """A response and the messages before it.

    Attributes:
        messages: (role, text) of the messages since the previous response.
        response: Text of the response.
        think: Reasoning, if the source separates it; `response` then begins with `<think>think</think>`.
        prompt_ids: Tokens added before the response since the previous one, or since the context start; None if the
            source has none.
        response_ids: Sampled tokens; None if the source has none.
        logprobs: Log-probs aligned with `response_ids`; None if the source has none.
        is_context_start: Whether a new context starts with `prompt_ids`.
        finish_reason: 'stop', 'length' or 'unknown'.
        images: Images among the messages, or where tokens are known those that `prompt_ids` show.
        columns: Columns of `turns` that the source provides and that override the derived ones, as in our own exports.
        chat: `messages` and then the response, as chat templates take them, with tool calls and reasoning apart: kept
            where there are no tokens. Empty: the source has no more than their texts.
    """

    messages: Sequence[Message]
    response: str
    think: str | None = None
    prompt_ids: Sequence[int] | None = None
    response_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    is_context_start: bool = False
    finish_reason: str = UNKNOWN_FINISH
    images: Sequence[PlacedImage] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    chat: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Trace:
    """A trajectory.

    Attributes:
        name: Id in the source; None if it has none.
        group: Id of the group; None for a group of its own.
        env: Name of the task or environment in the source.
        turns: At least one.
        reward: Reward of the whole trajectory; None if the source has none.
        success: Whether the goal of the task was reached; None if the source does not record it.
        has_failed: Whether it ended in an error, which excludes it from statistics.
        is_truncated: Whether it was ended by a limit.
        member: Index in the group; None to number by order of appearance.
        columns: Columns of `turns`, equal in all turns, that the source provides and that override the derived ones.
        digest: `atif.rows_digest` of the rows it was exported from, for our own exports.
        tools: Declarations of the tools that it could call.
        metadata: What else the source says, as JSON: kept in `info` of the first turn.
        note: What an import should say of the whole file, if anything.
    """

    name: str | None
    group: str | None
    env: str
    turns: Sequence[TraceTurn]
    reward: float | None = None
    success: bool | None = None
    has_failed: bool = False
    is_truncated: bool = False
    member: int | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    digest: str | None = None
    tools: Sequence[Any] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


def rows_of(trace: Trace, name: str, source: str) -> list[Row]:
    """Convert a trace to rows of dataset `turns`.

    `actions_left` counts from -1 down: the spool adds the number of actions of the longest trajectory of the group.

    Args:
        trace: Trace as read from the source.
        name: Id to use if the source has none.
        source: Name of the format, for `info`.

    Raises:
        TraceFault: If lengths, ids, log-probs or the reward are invalid.
    """
    if not trace.turns:
        raise TraceFault("has no response")
    if len(trace.turns) > MAX_TURNS:
        raise TraceFault(f"has {len(trace.turns)} responses, more than {MAX_TURNS}")
    _check_tokens(trace.turns)
    _check_images(trace.turns)
    trajectory_id = trace.name or name
    group_id = trace.group or trajectory_id
    same = _same_columns(trace, trajectory_id, group_id)
    rewards = _rewards(trace)
    rows: list[Row] = []
    history, state = hashlib.sha256(), same["initial_state_digest"]
    num_taken = 0
    for number, turn in enumerate(trace.turns):
        shown = [[image.image.digest for image in turn.images]] if turn.images else []
        history.update(json.dumps([list(turn.messages), turn.response, *shown]).encode())
        row = {**same, **_turn_columns(turn, rewards[number]), "turn": number, "actions_left": -1 - num_taken}
        row["is_context_start"] = number == 0 or turn.is_context_start
        row["state_digest"] = state = history.hexdigest()[:16] if row["executed_actions"] else state
        is_last = number == len(trace.turns) - 1
        row["terminated"] = is_last and not trace.is_truncated and not trace.has_failed
        row["truncated"] = is_last and trace.is_truncated
        row["success"] = is_last and bool(trace.success) and num_taken + len(row["executed_actions"]) > 0
        if is_last and trace.has_failed:
            row["status"] = "env_error"
        row["info"] = _info(trace, turn, source)
        num_taken += len(row["executed_actions"])
        rows.append({**row, **trace.columns, **turn.columns})
    return rows


def _same_columns(trace: Trace, trajectory_id: str, group_id: str) -> Row:
    digest = hashlib.sha256(json.dumps([trace.env, group_id]).encode()).hexdigest()
    return {
        "trajectory_id": trajectory_id,
        "group_id": group_id,
        "env": trace.env or "unknown",
        "env_seed": int(digest[:15], 16),
        "dynamics_seed": 0,
        "sampling_seed": 0,
        "member": -1 if trace.member is None else trace.member,
        "initial_state_digest": digest[-16:],
        "action_cost": 0.0,
        "forfeited_actions": 0,
    }


def _turn_columns(turn: TraceTurn, reward: float | None) -> Row:
    think, answer = _parts(turn)
    action = answer.strip()[:_ACTION_CHARACTERS].strip()
    has_tokens = turn.response_ids is not None
    is_recorded = has_tokens and turn.logprobs is not None
    executed = [action] if action and reward is not None else []
    return {
        "observation": _observation(turn),
        "prompt_ids": list(turn.prompt_ids or []) if has_tokens else [],
        "response_ids": list(turn.response_ids or []),
        "behaviour_logprobs": list(turn.logprobs or []) if is_recorded else [],
        "response": turn.response,
        "think": think,
        "answer": answer if action else None,
        "parsed_actions": [action] if action else [],
        "executed_actions": executed,
        "action_rewards": [reward] if executed else [],
        "action_effective": [True] if executed else [],
        "format_ok": bool(action),
        "finish_reason": turn.finish_reason if is_recorded and turn.response_ids else UNKNOWN_FINISH,
        "status": "ok" if action else "format_error",
        "origin": "policy",
        "num_candidates": 1,
        "num_as_good": 1,
    }


def _parts(turn: TraceTurn) -> tuple[str | None, str]:
    """Return the reasoning, which the source separates or the response begins with, and the answer after it."""
    if turn.think:
        return turn.think, turn.response.removeprefix(f"<think>{turn.think}</think>")
    if match := _LEADING_THINK.match(turn.response):
        return match[1], turn.response[match.end() :]
    return None, turn.response


def _rewards(trace: Trace) -> list[float | None]:
    """Assign the reward to the last non-empty response; the others get 0, as in the source."""
    if trace.reward is None:  # a success needs an executed action, here with reward 0
        return [None if trace.success is None else 0.0] * len(trace.turns)
    if not math.isfinite(trace.reward):
        raise TraceFault(f"has the reward {trace.reward}, expected a finite number")
    acting = _acting(trace)
    if not acting and trace.reward:
        raise TraceFault("has a reward, and no response that says anything")
    return [trace.reward if acting and number == acting[-1] else 0.0 for number in range(len(trace.turns))]


def _acting(trace: Trace) -> list[int]:
    """Return the indices of the non-empty responses."""
    return [number for number, turn in enumerate(trace.turns) if _parts(turn)[1].strip()]


def _info(trace: Trace, turn: TraceTurn, source: str) -> str:
    absent = [name for name in _NEVER_TOLD if name not in trace.columns]
    absent += ["prompt_ids", "response_ids"] if turn.response_ids is None else []
    absent += ["behaviour_logprobs"] if turn.response_ids is None or turn.logprobs is None else []
    absent += ["reward"] if trace.reward is None else []
    absent += ["success"] if trace.success is None or (trace.success and not _acting(trace)) else []
    is_text = turn.response_ids is None
    *prompt, response = (turn.chat if is_text else ()) or [
        *({"role": role, "content": text} for role, text in turn.messages),
        {"role": "assistant", "content": turn.response},
    ]
    tools = trace.tools if is_text and (turn is trace.turns[0] or turn.is_context_start) else ()
    metadata = {"metadata": dict(trace.metadata)} if trace.metadata and turn is trace.turns[0] else {}
    texts = text_facts(prompt, response, tools, _observation(turn), turn.response)
    return imported_info({"format": source, "absent": absent} | texts | metadata)


def _observation(turn: TraceTurn) -> str:
    return "\n\n".join(text for role, text in turn.messages if role != "assistant")


def _check_images(turns: Sequence[TraceTurn]) -> None:
    for number, turn in enumerate(turns):
        end, prompt = 0, turn.prompt_ids or turn.columns.get("prompt_ids")
        num_prompt = len(prompt) if isinstance(prompt, Sequence) else 0
        for one in turn.images:
            if not (type(one.position) is type(one.num_tokens) is int and one.position >= end and one.num_tokens >= 0):
                raise TraceFault(f"response {number + 1}: its images do not lie one after the other in its prompt")
            end = one.position + max(one.num_tokens, 1)
            if one.num_tokens and end > num_prompt:
                raise TraceFault(f"response {number + 1}: an image lies beyond the end of its prompt")


def _check_tokens(turns: Sequence[TraceTurn]) -> None:
    size = 0
    for number, turn in enumerate(turns):
        if turn.response_ids is None:
            continue
        size += len(turn.prompt_ids or ()) + len(turn.response_ids)
        if size > MAX_TOKENS:
            raise TraceFault(f"has more than {MAX_TOKENS} tokens")
        for ids in (turn.prompt_ids or (), turn.response_ids):
            if not all(type(item) is int and 0 <= item < MAX_VOCABULARY for item in ids):
                raise TraceFault(f"response {number + 1}: token ids are whole numbers from 0 to {MAX_VOCABULARY - 1}")
        if turn.response_ids and not turn.prompt_ids:
            raise TraceFault(f"response {number + 1}: there are response ids, and no prompt ids before them")
        if turn.logprobs is None:
            continue
        if len(turn.logprobs) != len(turn.response_ids):
            raise TraceFault(
                f"response {number + 1}: there are {len(turn.logprobs)} log-probs for {len(turn.response_ids)} tokens"
            )
        if not all(type(item) in (int, float) and MIN_LOGPROB <= item <= 0 for item in turn.logprobs):
            raise TraceFault(f"response {number + 1}: log-probs are numbers from {MIN_LOGPROB:g} to 0")
