"""Messages of chat formats as text: joined parts, reasoning in tags, tool calls as JSON.

{"role", "content", "reasoning_content", "tool_calls"} -> text
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from starpo.ragen.agents.vision.image_tokens import MARK, REPLACEMENT
from starpo.ragen.evidence.exchange.image_parts import ImageParts
from starpo.ragen.evidence.exchange.trace import Message, TraceFault
from starpo.schemas.datasets import ERROR_STATUSES

ChatMessage = dict[str, Any]
"""A message as chat templates take it."""

_DIGEST = re.compile("[0-9a-f]{16}")
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def text_of(content: Any, images: ImageParts | None = None) -> str:
    """Return the content of a message: a text, or joined parts that are texts.

    Args:
        content: Content of the message.
        images: Notes images among the parts, which become marks in the text. None: the message shows none.

    Raises:
        TraceFault: If the content is something else, or an image that cannot be decoded.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content if images is None else content.replace(MARK, REPLACEMENT)
    if not isinstance(content, list):
        raise TraceFault(f"a message's content is of type {type(content).__name__}, expected text or a list of parts")
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else part
        if images is not None:
            text = text.replace(MARK, REPLACEMENT) if isinstance(text, str) else text
            text = images.mark(part) if text is None and isinstance(part, Mapping) else text
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise TraceFault(f"a message has a part of type {str(kind)[:40]!r}; texts alone can be imported")
        texts.append(text)
    return "".join(texts)


def response_of(content: Any, reasoning: Any = None, tool_calls: Any = None) -> tuple[str, str | None]:
    """Return the text of a response, `<think>reasoning</think>content` and a line per tool call, and its reasoning.

    Raises:
        TraceFault: If a part is not text, or the tool calls are not a list.
    """
    text = text_of(content)
    if tool_calls:
        if not isinstance(tool_calls, list):
            raise TraceFault("tool_calls is not a list")
        calls = [json.dumps(call, sort_keys=True, ensure_ascii=False) for call in tool_calls]
        text = "\n".join([*([text] if text else []), *calls])
    think = text_of(reasoning)
    return (f"<think>{think}</think>{text}", think) if think else (text, None)


def message_of(value: Any, images: ImageParts | None = None) -> Message:
    """Return the role and text of a message; `images` as in `text_of`, for those that are no response.

    Raises:
        TraceFault: If the value is not a message of a known role.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        raise TraceFault("a message has no role")
    if value["role"] not in ROLES:
        raise TraceFault(f"a message is of the role {value['role'][:40]!r}; known are {', '.join(ROLES)}")
    if value["role"] == "assistant":
        return "assistant", response_of(*assistant_parts(value))[0]
    return value["role"], text_of(value.get("content"), images)


def assistant_parts(value: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return the content, reasoning and tool calls of an assistant message."""
    reasoning = value.get("reasoning_content") or value.get("reasoning") or value.get("thinking")
    calls = value.get("tool_calls")
    if not calls and (call := value.get("function_call")):  # OpenAI's former name for a single one
        calls = [{"type": "function", "function": call}]
    return value.get("content"), reasoning, calls


def chat_message(value: Mapping[str, Any], role: str = "") -> ChatMessage:
    """Return a message as chat templates take it: text alone, reasoning apart, arguments of calls as an object.

    A `function_call` becomes one of `tool_calls`, the role 'function' becomes 'tool'. What no template shows is left
    out.

    Args:
        value: A message that `message_of` accepts.
        role: Its role; that of the message if empty.

    Raises:
        TraceFault: If the tool calls are malformed.
    """
    role = role or value["role"]
    role = {"function": "tool", "developer": "system"}.get(role, role)
    content, reasoning, calls = assistant_parts(value)
    message: ChatMessage = {"role": role, "content": text_of(content)}
    if role == "assistant":
        if think := text_of(reasoning):
            message["reasoning_content"] = think
        if calls := [_chat_call(call) for call in calls or ()]:
            message["tool_calls"] = calls
    return message | {name: value[name] for name in ("name", "tool_call_id") if isinstance(value.get(name), str)}


def _chat_call(call: Any) -> ChatMessage:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise TraceFault("a tool call has no function with a name")
    own_id = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {
        "type": "function", **own_id, "function": {"name": function["name"], "arguments": _arguments(function)}
    }  # fmt: skip


def _arguments(function: Mapping[str, Any]) -> Any:
    """Return the arguments of a call as an object; a text that is none stays."""
    given = function.get("arguments")
    if not isinstance(given, str):
        return {} if given is None else given
    try:
        read = json.loads(given or "{}")
    except (ValueError, RecursionError):
        return given
    return read if isinstance(read, Mapping) else given


def tools_of(value: Mapping[str, Any]) -> list[Any]:
    """Return the tools that a line declares, in a list or as the JSON of one; a bare function becomes a tool.

    Raises:
        TraceFault: If they are something else.
    """
    given = value.get("tools") or []
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise TraceFault("tools is neither a list nor the JSON of one") from None
    functions = value.get("functions") or []
    if not isinstance(given, list) or not isinstance(functions, list):
        raise TraceFault("tools is neither a list nor the JSON of one")
    return [
        {"type": "function", "function": tool} if isinstance(tool, Mapping) and "name" in tool else tool
        for tool in (*given, *functions)
    ]


def facts_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the metadata of an exported line (`Played.facts`) to keyword arguments of `Trace`.

    Raises:
        TraceFault: If the seed or digest of the initial state is not valid in `turns`.
    """
    member, seed, digest = (value.get(name) for name in ("member", "env_seed", "initial_state_digest"))
    if seed is not None and not (type(seed) is int and 0 <= seed < 2**63):
        raise TraceFault(f"env_seed is {str(seed)[:40]!r}, expected a whole number from 0 to 2^63 - 1")
    if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise TraceFault(f"initial_state_digest is {str(digest)[:40]!r}, expected 16 hexadecimal digits")
    return {
        "success": flag_of(value.get("success")),
        "has_failed": value.get("status") in ERROR_STATUSES,
        "is_truncated": value.get("truncated") is True,
        "member": member if type(member) is int else None,
        "columns": {
            name: column
            for name, column in (("env_seed", seed), ("initial_state_digest", digest))
            if column is not None
        },
    }


def number_of(value: Any, what: str) -> float | None:
    """Return a number as float, or None if it is missing.

    Raises:
        TraceFault: If the value is something else, or its magnitude exceeds 1e300.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise TraceFault(f"{what} is {str(value)[:40]!r}, expected a number")
    return float(value)


def name_of(value: Any) -> str | None:
    """Return an id as text; None if it is missing or empty."""
    return None if value is None or value == "" else str(value)


def flag_of(value: Any) -> bool | None:
    """Return a boolean; None if the value is missing or something else."""
    return value if isinstance(value, bool) else None
