"""A trajectory as other systems tell it, and the rows of `turns` that it becomes.

    ATIF | verifiers | messages | verl | TRL -> Trace -> rows -> spool

What a source does not have is absent and never made up: without tokens `prompt_ids`, `response_ids` and
`behaviour_logprobs` are empty and `finish_reason` is 'unknown', without log-probs the last alone; `info` names what
else is absent, and there are no rewards where the source has none. A response counts as one action, which is how a
reward finds its turn.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starpo.schemas.datasets import UNKNOWN_FINISH
from starpo.schemas.turn_rules import MAX_VOCABULARY, MIN_LOGPROB

Row = dict[str, Any]
Message = tuple[str, str]
"""Role and text."""

MAX_TURNS = 10_000
"""Of one trace."""
MAX_TOKENS = 2**24
"""Of all prompts and responses of one trace."""

_ACTION_CHARACTERS = 60
_NEVER_TOLD = ("env_seed", "dynamics_seed", "sampling_seed", "action_cost", "initial_state_digest", "state_digest")
"""Columns that no other system knows; what stands in them tells groups and states apart, and means nothing else."""

IMPORTED_MARK = '{"imported": '
"""How `info` begins in rows that were made of another system's trace."""


class TraceFault(ValueError):  # noqa: N818 (it is data that has the fault)
    """What is wrong with one trace of a file; the others are none the worse."""


@dataclass(frozen=True)
class TraceTurn:
    """A response and what came before it.

    Attributes:
        messages: What was told since the response before, by role.
        response: The response's text.
        think: The reasoning, where it can be told apart; it stands in `response`.
        prompt_ids: Tokens put before the response since the context start; None: the source has none.
        response_ids: Sampled tokens; None: the source has none.
        logprobs: Aligned with `response_ids`; None: the source has none.
        is_context_start: Does the context begin anew with `prompt_ids`?
        finish_reason: 'stop', 'length', or 'unknown'.
        columns: Columns of `turns` that the source knows better than this class, such as those of our own exports.
    """

    messages: Sequence[Message]
    response: str
    think: str | None = None
    prompt_ids: Sequence[int] | None = None
    response_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    is_context_start: bool = False
    finish_reason: str = UNKNOWN_FINISH
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """A trajectory.

    Attributes:
        name: Its id in the source; None: it has none.
        group: Id of the group; None: it stands alone.
        env: Name of the task or environment, as the source has it.
        turns: At least one.
        reward: Of the whole trajectory; None: the source has none.
        success: Was the task's goal reached? None: the source does not say.
        has_failed: Did an error end it? Then it is in no statistic.
        is_truncated: Did a limit end it?
        member: Index in the group; None: by order of appearance.
        columns: Columns of `turns`, the same in all turns, that the source knows better.
        digest: Of the rows that this was exported from, where they were ours; `atif.rows_digest`.
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


def rows_of(trace: Trace, name: str, source: str) -> list[Row]:
    """Rows of dataset `turns`. `actions_left` counts from -1 down: the spool adds what the group's longest needs.

    Args:
        trace: As the source has it.
        name: Its id, where the source has none.
        source: Name of the format, for `info`.

    Raises:
        TraceFault: If lengths, ids, log-probs or the reward cannot be right.
    """
    if not trace.turns:
        raise TraceFault("has no response")
    if len(trace.turns) > MAX_TURNS:
        raise TraceFault(f"has {len(trace.turns)} responses, more than {MAX_TURNS}")
    _check_tokens(trace.turns)
    trajectory_id = trace.name or name
    group_id = trace.group or trajectory_id
    same = _same_columns(trace, trajectory_id, group_id)
    rewards = _rewards(trace)
    rows: list[Row] = []
    told, state = hashlib.sha256(), same["initial_state_digest"]
    num_taken = 0
    for number, turn in enumerate(trace.turns):
        told.update(json.dumps([list(turn.messages), turn.response]).encode())
        row = {**same, **_turn_columns(turn, rewards[number]), "turn": number, "actions_left": -1 - num_taken}
        row["is_context_start"] = number == 0 or turn.is_context_start
        row["state_digest"] = state = told.hexdigest()[:16] if row["executed_actions"] else state
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
    answer = _answer(turn)
    action = answer.strip()[:_ACTION_CHARACTERS].strip()
    has_tokens = turn.response_ids is not None
    is_recorded = has_tokens and turn.logprobs is not None
    executed = [action] if action and reward is not None else []
    return {
        "observation": "\n\n".join(text for role, text in turn.messages if role != "assistant"),
        "prompt_ids": list(turn.prompt_ids or []) if has_tokens else [],
        "response_ids": list(turn.response_ids or []),
        "behaviour_logprobs": list(turn.logprobs or []) if is_recorded else [],
        "response": turn.response,
        "think": turn.think,
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


def _answer(turn: TraceTurn) -> str:
    if not turn.think:
        return turn.response
    return turn.response.partition(turn.think)[2].removeprefix("</think>")


def _rewards(trace: Trace) -> list[float | None]:
    """The reward stands at the last response that says something; the others are paid 0, as the source pays them."""
    if trace.reward is None:  # a success needs an action, as a reward does; it is paid nothing
        return [None if trace.success is None else 0.0] * len(trace.turns)
    if not math.isfinite(trace.reward):
        raise TraceFault(f"has the reward {trace.reward}, expected a finite number")
    acting = _acting(trace)
    if not acting and trace.reward:
        raise TraceFault("has a reward, and no response that says anything")
    return [trace.reward if acting and number == acting[-1] else 0.0 for number in range(len(trace.turns))]


def _acting(trace: Trace) -> list[int]:
    """The responses that say something."""
    return [number for number, turn in enumerate(trace.turns) if _answer(turn).strip()]


def _info(trace: Trace, turn: TraceTurn, source: str) -> str:
    absent = [name for name in _NEVER_TOLD if name not in trace.columns]
    absent += ["prompt_ids", "response_ids"] if turn.response_ids is None else []
    absent += ["behaviour_logprobs"] if turn.response_ids is None or turn.logprobs is None else []
    absent += ["reward"] if trace.reward is None else []
    absent += ["success"] if trace.success is None or (trace.success and not _acting(trace)) else []
    facts: dict[str, Any] = {"format": source, "absent": absent}
    if [role for role, _ in turn.messages] != ["user"]:
        facts["messages"] = [{"role": role, "content": text} for role, text in turn.messages]
    return json.dumps({"imported": facts})


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
