"""Turns whose tokens are not known: the messages that they consist of, as chat templates take them.

They are in the column `info` of `turns`, as far as `observation` and `response` do not say the same: for imported turns
among the facts of `imported`, else beside the others.

    messages before the response, the response, tools -> `text_facts` -> info -> `messages_of`
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starpo.schemas.datasets import UNKNOWN_FINISH
from starpo.schemas.imported import imported_facts

Message = Mapping[str, Any]


def text_facts(
    messages: Sequence[Message], response: Message, tools: Sequence[Any], observation: str, text: str
) -> dict[str, Any]:
    """Return what `info` must hold of a turn.

    Args:
        messages: The messages since the previous response of the context.
        response: The message of the assistant.
        tools: Declarations of tools.
        observation: The row's `observation`.
        text: The row's `response`.
    """
    facts: dict[str, Any] = {}
    if list(messages) != [{"role": "user", "content": observation}]:
        facts["messages"] = list(messages)
    if response != {"role": "assistant", "content": text}:
        facts["response"] = dict(response)
    return facts | ({"tools": list(tools)} if tools else {})


def is_text(row: Mapping[str, Any]) -> bool:
    """Whether the tokens of a turn's response are not known, from a row of `turns`."""
    return row["finish_reason"] == UNKNOWN_FINISH and not row["response_ids"]


def messages_of(row: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any], list[Any]]:
    """Return the messages before a response, the response, and the declarations of tools, from a row of `turns`."""
    facts = imported_facts(row) or (json.loads(row["info"]) if is_text(row) else {})
    messages = facts.get("messages", [{"role": "user", "content": row["observation"]}])
    response = facts.get("response", {"role": "assistant", "content": row["response"]})
    return messages, response, facts.get("tools", [])
