"""`/v1/responses`, which the OpenAI Agents SDK speaks unless told otherwise, in terms of chat completions.

    body -> `as_chat` -> body of a chat completion        Reply -> `responded` -> body

The conversation is the program's: what refers to one that a server keeps is refused, and so are streams.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from starpo.ragen.methods.programs.chat import refusal
from starpo.ragen.methods.programs.replies import Reply
from starpo.ragen.methods.programs.settings import MODEL


class _Part(BaseModel):
    type: Literal["input_text", "output_text", "input_image"]
    text: str = ""
    image_url: str | None = None
    detail: Any = None


class _Item(BaseModel):
    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: str = ""
    content: str | list[_Part] = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[_Part] = ""


class _Format(BaseModel):
    format: dict[Literal["type"], Literal["text"]] | None = None


class _Body(BaseModel):
    """What has other names than in a chat completion, which has the rest too; `Any` has no effect."""

    model_config = ConfigDict(extra="allow")

    input: str | list[_Item]
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    max_output_tokens: Any = None
    stream: Literal[False] | None = None
    text: _Format | None = None
    include: Any = None
    truncation: Literal["disabled"] | None = None


def as_chat(body: bytes) -> bytes:
    """Return the body of the chat completion that asks for the same.

    Raises:
        Refusal: If what is particular to this protocol is malformed, or not served.
    """
    try:
        asked = _Body.model_validate_json(body)
    except ValidationError as error:
        raise refusal(error) from None
    items = [_Item(role="user", content=asked.input)] if isinstance(asked.input, str) else asked.input
    instructions = [{"role": "system", "content": asked.instructions}] if asked.instructions else []
    tools = [{"type": tool.get("type"), "function": {**tool, "type": None}} for tool in asked.tools or ()]
    chat = {"messages": instructions + _messages(items), "tools": tools, "max_tokens": asked.max_output_tokens}
    return json.dumps((asked.model_extra or {}) | chat).encode()


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
        else {"type": "text", "text": part.text}
        for part in content
    ]


def responded(reply: Reply) -> bytes:
    """Return the body of a `response`."""
    said, is_cut = reply.said, reply.finish_reason == "length"
    output: list[dict[str, Any]] = [
        {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name,
         "arguments": call.arguments, "status": "completed"}
        for call in said.calls
    ]  # fmt: skip
    if said.content or not output:
        content = [{"type": "output_text", "text": said.content, "annotations": []}]
        output.insert(0, {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "content": content})
        output[0]["status"] = "incomplete" if is_cut else "completed"
    numbers = reply.num_prompt_tokens, reply.num_response_tokens
    usage = dict(zip(("input_tokens", "output_tokens", "total_tokens"), (*numbers, sum(numbers)), strict=True))
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {"id": reply.id, "object": "response", "created_at": 0, "model": MODEL, "output": output, "error": None}
    whole |= {"status": "incomplete" if is_cut else "completed", "usage": usage | details, "tools": []}
    whole |= {"incomplete_details": {"reason": "max_output_tokens"} if is_cut else None, "metadata": {}}
    return json.dumps(whole | {"instructions": None, "parallel_tool_calls": True, "tool_choice": "auto"}).encode()
