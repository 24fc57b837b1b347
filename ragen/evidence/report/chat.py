"""Trajectories that a program played, as the chat that they were: what a turn's row of `turns` does not say by itself.

rows of a trajectory -> read_chat -> for each turn: its conversation, its messages, and how the program ended
"""

import json
from collections.abc import Sequence
from typing import Any

from starpo.ragen.evidence.report.embedding import shortened

Row = dict[str, Any]

_ROLES = ("system", "user", "assistant", "tool")
_FOLDED = ("output", "refusals", "overridden")
"""Facts of an ended program that are listed; the others are sentences."""


def read_chat(rows: Sequence[Row]) -> list[Row | None]:
    """Read the chat of a trajectory.

    Args:
        rows: Its rows of `turns`, in order.

    Returns:
        For each turn its `conversation`, its `messages` (None: the observation is the text of one), and `remarks`,
        titles and texts; None for each turn if no program played it.
    """
    if '"program": ' not in rows[-1]["info"]:
        return [None] * len(rows)
    infos = [json.loads(row["info"]) for row in rows]
    if not {"program", "refused"} <= infos[-1].keys():  # an environment's own fact of that name
        return [None] * len(rows)
    return [
        {
            "conversation": info.get("conversation"),
            "messages": read_messages(row["observation"]),
            "remarks": _remarks(info),
        }
        for row, info in zip(rows, infos, strict=True)
    ]


def read_messages(observation: str) -> list[Row] | None:
    """Read the messages that a program sent, if there were several; None if the observation is the text of one."""
    if not observation.startswith('[{"role": "'):
        return None
    try:
        messages = json.loads(observation)
        return [_message(one) for one in messages] if all(map(_is_message, messages)) else None
    except (ValueError, RecursionError):  # a text that looks like them
        return None


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("role") not in _ROLES or not isinstance(value.get("content"), str):
        return False
    calls, images = value.get("tool_calls", []), value.get("images", [])
    return isinstance(calls, list) and isinstance(images, list) and all(isinstance(name, str) for name in images)


def _message(value: Row) -> Row:
    text, num_cut = shortened(value["content"])
    calls = [shortened(json.dumps(call, ensure_ascii=False))[0] for call in value.get("tool_calls", [])]
    return {"role": value["role"], "text": text, "cut": num_cut, "calls": calls, "images": value.get("images", [])}


def _remarks(info: Row) -> list[list[Any]]:
    """Return what concerns the whole episode: title, text, and number of characters cut off."""
    remarks = []
    if "error" in info:
        remarks.append([str(info["error"]), *shortened(str(info.get("message", "")))])
    if "limit" in info:
        remarks.append(["Limit", *shortened(str(info["limit"]))])
    for name in _FOLDED:
        if value := info.get(name):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
            remarks.append([name.capitalize(), *shortened(text)])
    return remarks
