"""Requests for chat completions: what a program may ask for, read into values that can be compared.

    body of a request -> `read_request` -> ChatRequest, or Refusal

A program may be anybody's, so a body is untrusted data of any shape. What would change the distribution that responses
are sampled from, and hence what is trained on, is refused with a reason rather than ignored.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starpo.ragen.methods.programs.settings import MODEL

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_MESSAGES, _MAX_TOOLS, _MAX_STOPS = 10_000, 256, 16
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tool_choice": ("auto", "required", "none"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "functions": ([],),
}
"""Parameter -> the values that are accepted; any other would need another sampler."""
_IGNORED = frozenset({
    "user", "metadata", "store", "seed", "service_tier", "parallel_tool_calls", "stream_options", "safety_identifier",
    "prompt_cache_key", "prompt_cache_retention",
})  # fmt: skip
"""Parameters that do not concern what is sampled: tokens are drawn with the trajectory's own seed."""
_READ = frozenset({
    "model", "messages", "tools", "stream", "stop", "temperature", "top_p", "max_tokens", "max_completion_tokens",
})  # fmt: skip


class Refusal(Exception):  # noqa: N818
    """A request that is not served; becomes an error body of OpenAI's form.

    Attributes:
        status: HTTP status.
        code: Word for programs.
        param: The parameter at fault; None if it is none of them.
    """

    def __init__(self, message: str, *, code: str = "invalid_value", param: str | None = None, status: int = 400):
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


@dataclass(frozen=True)
class Call:
    """A tool call. Its id is no part of what the model sees, so calls are compared without it.

    Attributes:
        name: Name of the tool.
        arguments: JSON object with sorted keys, as text.
        id: What the answer to it refers to.
    """

    name: str
    arguments: str
    id: str = field(default="", compare=False)


@dataclass(frozen=True)
class ChatMessage:
    """A message, as far as the model sees it; two messages are equal if they show the model the same.

    Attributes:
        role: 'system', 'user', 'assistant' or 'tool'.
        content: Its text; '' if it has none.
        calls: Tool calls of the assistant.
        call_id: The call that a tool's message answers.
    """

    role: str
    content: str
    calls: tuple[Call, ...] = ()
    call_id: str = field(default="", compare=False)

    def as_json(self) -> dict[str, Any]:
        """Return role, content and, if there are any, the calls, for storage and display."""
        calls = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in self.calls]
        return {"role": self.role, "content": self.content} | ({"tool_calls": calls} if calls else {})


@dataclass(frozen=True)
class ChatRequest:
    """A request that can be served.

    Attributes:
        messages: The conversation, at least one message.
        tools: JSON of the tools' declarations, in the form that chat templates take; '[]' if there are none.
        tool_names: Names of the tools.
        max_tokens: Maximum length of the response; None: the run's.
        stops: Texts before which the response is cut off.
        is_streamed: Whether the answer is sent as events.
        has_usage: Whether the last event reports the numbers of tokens.
    """

    messages: tuple[ChatMessage, ...]
    tools: str = "[]"
    tool_names: tuple[str, ...] = ()
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    is_streamed: bool = False
    has_usage: bool = False


def read_request(body: bytes, temperature: float | None, top_p: float | None) -> ChatRequest:
    """Read the body of a request.

    Args:
        body: JSON, as sent.
        temperature: The run's; a request may name this one only. None: any is accepted, without effect.
        top_p: Likewise.

    Raises:
        Refusal: If it is no request, or asks for something that is not served.
    """
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate is no text
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the body is not JSON: {error}"[:300], code="invalid_json") from None
    if not isinstance(value, dict):
        raise Refusal("the body is not a JSON object", code="invalid_json")
    asked = {name: item for name, item in value.items() if item is not None}
    _check_model(asked.get("model"))
    _check_parameters(asked)
    for name, own in (("temperature", temperature), ("top_p", top_p)):
        given = asked.get(name, own)
        if own is not None and (not _is_number(given) or abs(given - own) > 1e-6):
            raise Refusal(
                f"{name} = {given!r} is not that of this run, {own:g}: responses are sampled as the run's settings "
                f"say, or they could not be trained on. Leave {name} out",
                param=name,
            )
    messages = _list(asked, "messages", _MAX_MESSAGES)
    if not messages:
        raise Refusal("messages is empty; at least one message is needed", param="messages")
    tools = [] if asked.get("tool_choice") == "none" else _list(asked, "tools", _MAX_TOOLS)
    declarations = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    options = asked.get("stream_options")
    return ChatRequest(
        messages=tuple(_message(message, f"messages[{index}]") for index, message in enumerate(messages)),
        tools=json.dumps(declarations, ensure_ascii=False),
        tool_names=tuple(declared["function"]["name"] for declared in declarations),
        max_tokens=_max_tokens(asked),
        stops=_stops(asked.get("stop")),
        is_streamed=asked.get("stream") is True,
        has_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _check_model(model: Any) -> None:
    if model != MODEL:
        raise Refusal(
            f"there is no model {str(model)[:100]!r} here; the policy is served as '{MODEL}'",
            code="model_not_found",
            param="model",
        )


def _check_parameters(asked: Mapping[str, Any]) -> None:
    for name, value in asked.items():
        if name in _READ or name in _IGNORED:
            continue
        accepted = _NEUTRAL.get(name)
        if accepted is None:
            raise Refusal(
                f"the parameter {name[:100]!r} is not supported: leave it out", code="unsupported_parameter", param=name
            )
        if value not in accepted:
            raise Refusal(
                f"{name} = {str(value)[:100]} is not supported, only {' or '.join(map(repr, accepted))}: responses are "
                "sampled one at a time from the policy alone",
                code="unsupported_value",
                param=name,
            )


def _message(value: Any, place: str) -> ChatMessage:
    if not isinstance(value, dict):
        raise Refusal(f"{place} is no object", param="messages")
    role = value.get("role")
    role = "system" if role == "developer" else role
    if role not in ("system", "user", "assistant", "tool"):
        raise Refusal(
            f"{place}.role is {str(role)[:100]!r}; expected system, developer, user, assistant or tool",
            param="messages",
        )
    calls = value.get("tool_calls") or []
    if calls and role != "assistant":
        raise Refusal(f"{place}: only the assistant has tool_calls", param="messages")
    if not isinstance(calls, list) or len(calls) > _MAX_TOOLS:
        raise Refusal(f"{place}.tool_calls is no list of at most {_MAX_TOOLS}", param="messages")
    return ChatMessage(
        role,
        _content(value.get("content"), place),
        tuple(_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(calls)),
        str(value.get("tool_call_id") or ""),
    )


def _content(value: Any, place: str) -> str:
    """Return the text of a message's content: a text, a list of text parts, or nothing."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        kinds = {str(part.get("type")) for part in value} - {"text"}
        if kinds:
            raise Refusal(
                f"{place}.content has a part of type {min(kinds)[:100]!r}; the policy reads text only",
                code="unsupported_content",
                param="messages",
            )
        if all(isinstance(part.get("text"), str) for part in value):
            return "".join(part["text"] for part in value)
    raise Refusal(f"{place}.content is neither a text nor a list of text parts", param="messages")


def _call(value: Any, place: str) -> Call:
    function = value.get("function") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if function is None or not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refusal(f"{place} is no call of a function with a name", param="messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise Refusal(f"{place}.function.arguments is no JSON object", param="messages")
    return Call(name, spelled(arguments), str(value.get("id") or ""))


def spelled(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON with sorted keys."""
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


def _tool(value: Any, place: str) -> dict[str, Any]:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or value.get("type") != "function":
        raise Refusal(f"{place} is no tool of type 'function'", param="tools")
    name, description = function.get("name"), function.get("description") or ""
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refusal(f"{place}.function.name is not a name of at most 64 letters, digits, _, . or -", param="tools")
    if not isinstance(description, str) or not isinstance(parameters, dict):
        raise Refusal(f"{place}.function: description is a text, parameters a JSON schema", param="tools")
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _list(asked: Mapping[str, Any], name: str, limit: int) -> list[Any]:
    value = asked.get(name, [])
    if not isinstance(value, list) or len(value) > limit:
        raise Refusal(f"{name} is no list of at most {limit:,}", param=name)
    return value


def _max_tokens(asked: Mapping[str, Any]) -> int | None:
    given = [asked[name] for name in ("max_tokens", "max_completion_tokens") if name in asked]
    if any(isinstance(number, bool) or not isinstance(number, int) or number < 1 for number in given):
        raise Refusal("max_tokens is no positive integer", param="max_tokens")
    return min(given, default=None)


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list) or len(stops) > _MAX_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise Refusal(f"stop is neither a text nor a list of at most {_MAX_STOPS} texts", param="stop")
    return tuple(stops)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
