"""`/v1/responses`, which the OpenAI Agents SDK speaks unless told otherwise, in terms of chat completions.

    body -> `as_chat` -> body of a chat completion        Reply -> `responded` -> body, or `events` of a stream

The conversation is the program's: what refers to one that a server keeps is refused.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from starpo.ragen.methods.programs.replies import Reply
from starpo.ragen.methods.programs.requests import MAX_MESSAGES, check_size, refusal
from starpo.ragen.methods.programs.settings import MODEL


class _Part(BaseModel):
    type: Literal["input_text", "output_text", "input_image", "refusal"]
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    detail: Any = None


_Parts = Annotated[list[_Part], Field(fail_fast=True, max_length=1024)]


class _Item(BaseModel):
    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: str = ""
    content: str | _Parts = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | _Parts = ""


class _Format(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    definition: dict[str, Any] = Field({}, alias="schema")


class _Text(BaseModel):
    format: _Format | None = None


class _Function(BaseModel):
    type: Literal["function"]
    name: str


class _Body(BaseModel):
    """What has other names than in a chat completion, which has the rest too; `Any` has no effect."""

    model_config = ConfigDict(extra="allow")

    input: str | Annotated[list[_Item], Field(fail_fast=True, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    tools: Annotated[list[dict[str, Any]], Field(fail_fast=True, max_length=256)] | None = None
    tool_choice: str | _Function | None = None
    max_output_tokens: Any = None
    text: _Text | None = None
    reasoning: Any = None
    include: Any = None
    truncation: Literal["disabled"] | None = None


def as_chat(body: bytes) -> bytes:
    """Return the body of the chat completion that asks for the same.

    Raises:
        Refusal: If what is particular to this protocol is malformed, or not served.
    """
    check_size(body)
    try:
        parsed = _Body.model_validate_json(body)
    except ValidationError as error:
        raise refusal(error) from None
    items = [_Item(role="user", content=parsed.input)] if isinstance(parsed.input, str) else parsed.input
    instructions = [{"role": "system", "content": parsed.instructions}] if parsed.instructions else []
    tools = [
        {"type": tool.get("type"), "function": {name: value for name, value in tool.items() if name != "type"}}
        for tool in parsed.tools or ()
    ]
    choice: Any = parsed.tool_choice
    if isinstance(choice, _Function):
        choice = {"type": "function", "function": {"name": choice.name}}
    form = parsed.text.format if parsed.text else None
    chat: dict[str, Any] = {
        "messages": instructions + _messages(items),
        "tools": tools,
        "max_tokens": parsed.max_output_tokens,
        "tool_choice": choice,
    }
    if form is not None:
        chat["response_format"] = {"type": form.type, "json_schema": {"schema": form.definition}}
    return json.dumps((parsed.model_extra or {}) | chat).encode()


def _messages(items: Sequence[_Item]) -> list[dict[str, Any]]:
    """Return messages; the calls after a message of the assistant's are part of it, as they were when it was said."""
    messages: list[dict[str, Any]] = []
    for item in items:
        if item.type == "function_call":
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            function = {"name": item.name, "arguments": item.arguments}
            messages[-1].setdefault("tool_calls", []).append({"id": item.call_id, "function": function})
        elif item.type == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _content(item.output)})
        else:
            messages.append({"role": item.role, "content": _content(item.content)})
    return messages


def _content(content: str | list[_Part]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {"type": "image_url", "image_url": {"url": part.image_url, "detail": part.detail}}
        if part.type == "input_image"
        else {"type": "text", "text": part.text or part.refusal}
        for part in content
    ]


def responded(reply: Reply) -> bytes:
    """Return the body of a `response`."""
    return json.dumps(_whole(reply)).encode()


def events(reply: Reply) -> Iterator[bytes]:
    """Yield the events of a streamed `response`, whose parts come whole."""
    whole = _whole(reply)
    begun = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield _event(0, "response.created", response=begun)
    number = 1
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            part = item["content"][0]
            inside = place | {"content_index": 0}
            empty = item | {"status": "in_progress", "content": []}
            steps = [
                ("content_part.added", inside | {"part": part | {"text": ""}}),
                ("output_text.delta", inside | {"delta": part["text"], "logprobs": []}),
                ("output_text.done", inside | {"text": part["text"], "logprobs": []}),
                ("content_part.done", inside | {"part": part}),
            ]
        else:
            empty = item | {"status": "in_progress", "arguments": ""}
            steps = [
                ("function_call_arguments.delta", place | {"delta": item["arguments"]}),
                ("function_call_arguments.done", place | {"arguments": item["arguments"], "name": item["name"]}),
            ]
        at = {"output_index": index}
        for kind, fields in (
            ("output_item.added", at | {"item": empty}),
            *steps,
            ("output_item.done", at | {"item": item}),
        ):
            yield _event(number, f"response.{kind}", **fields)
            number += 1
    yield _event(number, f"response.{whole['status']}", response=whole)


def _event(number: int, kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': number, **fields})}\n\n".encode()


def _whole(reply: Reply) -> dict[str, Any]:
    """Return a `response` that has ended."""
    message, is_cut = reply.message, reply.finish_reason == "length"
    output: list[dict[str, Any]] = [
        {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name,
         "arguments": call.arguments, "status": "completed"}
        for call in message.calls
    ]  # fmt: skip
    if message.content or not output:
        content = [{"type": "output_text", "text": message.content, "annotations": []}]
        output.insert(0, {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "content": content})
        output[0]["status"] = "incomplete" if is_cut else "completed"
    numbers = reply.num_prompt_tokens, reply.num_response_tokens
    usage = dict(zip(("input_tokens", "output_tokens", "total_tokens"), (*numbers, sum(numbers)), strict=True))
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {"id": reply.id, "object": "response", "created_at": 0, "model": MODEL, "output": output, "error": None}
    whole |= {"status": "incomplete" if is_cut else "completed", "usage": usage | details, "tools": []}
    whole |= {"incomplete_details": {"reason": "max_output_tokens"} if is_cut else None, "metadata": {}}
    return whole | {"instructions": None, "parallel_tool_calls": True, "tool_choice": "auto"}
