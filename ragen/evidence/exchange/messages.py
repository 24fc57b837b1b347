"""Chat messages as JSON lines, for supervised fine-tuning here and elsewhere: import and export, with images.

    context of a trajectory -> {"messages": [{role, content}], trajectory_id, ...}          line -> Trace

A line is one context of the model: a whole trajectory with context = 'full', one per turn with 'window'. Only a
trajectory of one context is imported: `num_contexts` is the number of them. Contents are the text between the pieces of
the chat template, so that the same template yields the same tokens; an opening tag that the prompt ends with is part of
the response. Assistant messages that a window merely repeats have `"weight": 0`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.evidence.exchange.content import (
    ChatMessage,
    assistant_parts,
    chat_message,
    facts_of,
    message_of,
    name_of,
    number_of,
    response_of,
    tools_of,
)
from starpo.ragen.evidence.exchange.image_parts import DATA_URL, ImageParts
from starpo.ragen.evidence.exchange.played import ExportedMessage, Played
from starpo.ragen.evidence.exchange.trace import Message, Trace, TraceFault, TraceTurn

Line = dict[str, Any]

_SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "observation": "tool"}
"""Names for roles in ShareGPT's form; roles themselves occur too."""


def message_lines(played: Played) -> Iterator[Line]:
    """Yield one line per context of a trajectory."""
    contexts = played.contexts()
    for context in contexts:
        messages = [_message(part) for part in context.parts]
        place = {"turns": [context.first_turn, context.last_turn], "num_contexts": len(contexts)}
        tools = {"tools": context.tools} if context.tools else {}
        yield {"messages": messages, **tools, **played.facts(), **place}


def read_messages(value: Any) -> Trace:
    """Read the trajectory of a line with `messages`, `conversations`, or `prompt` and `completion`; the rest is
    optional.

    Raises:
        TraceFault: If there are no messages, one is neither text nor images, or the line is a part of a trajectory.
    """
    if not isinstance(value, Mapping):
        raise TraceFault("is no JSON object")
    if value.get("num_contexts", 1) != 1:
        raise TraceFault(
            f"is one of {str(value['num_contexts'])[:40]} contexts of a trajectory, whose return is that of them all; "
            "such trajectories are exchanged as ATIF"
        )
    return Trace(
        name_of(value.get("trajectory_id", value.get("id"))),
        name_of(value.get("group_id")),
        str(value.get("env") or "messages"),
        turns_of(_messages(value)),
        number_of(value.get("return", value.get("reward")), "reward"),
        tools=tools_of(value),
        **facts_of(value),
    )


def turns_of(messages: list[Any]) -> list[TraceTurn]:
    """Split a conversation into responses, each with the messages before it.

    A message of the assistant with `"weight": 0` is none: it belongs to what comes before the next one.

    Raises:
        TraceFault: If a message is invalid, or there is no response.
    """
    turns: list[TraceTurn] = []
    prompt: list[Message] = []
    chat: list[ChatMessage] = []
    images = ImageParts()
    for message in messages:
        role, text = message_of(message, images)
        shown = {} if role == "assistant" else {"content": text}
        chat.append(chat_message({**message, **shown}))
        if role != "assistant" or message.get("weight") == 0:
            prompt.append((role, text))
            continue
        response, think = response_of(*assistant_parts(message))
        turns.append(TraceTurn(prompt, response, think, images=images.take(), chat=chat))
        prompt, chat = [], []
    if not turns:
        raise TraceFault("has no message of the role 'assistant' (with a weight other than 0)")
    return turns


def _message(part: ExportedMessage) -> Line:
    message: Line = {"role": part.role, "content": content_of(part, _image_url)}
    if part.message is not None and not part.images:
        message = dict(part.message)
    return message if part.is_new or part.role != "assistant" else {**message, "weight": 0}


def content_of(part: ExportedMessage, described: Callable[[Image], Line]) -> str | list[Line]:
    """Return the text of a message; with images a list of texts and images, each as `described` describes it."""
    if not part.images:
        return part.text
    before, *texts = part.text.split(MARK)
    content: list[Line] = [{"type": "text", "text": before}] if before else []
    for image, text in zip(part.images, texts, strict=True):
        content.append(described(image))
        content += [{"type": "text", "text": text}] if text else []
    return content


def _image_url(image: Image) -> Line:
    return {"type": "image_url", "image_url": {"url": DATA_URL + image.to_png()}}


def _messages(value: Mapping[str, Any]) -> list[Any]:
    messages = value.get("messages", value.get("conversations"))
    if messages is None and "completion" in value:
        messages = [*_as_messages(value.get("prompt"), "user"), *_as_messages(value["completion"], "assistant")]
    if not isinstance(messages, list):
        raise TraceFault("has no list 'messages' or 'conversations', and no 'prompt' and 'completion'")
    messages = [_of_sharegpt(message) for message in messages]
    system = value.get("system")
    return [{"role": "system", "content": system}, *messages] if isinstance(system, str) and system else messages


def _of_sharegpt(message: Any) -> Any:
    """Return a message of ShareGPT's form, `{"from": "human", "value": ...}`, as one with a role; others unchanged."""
    if not isinstance(message, Mapping) or "from" not in message:
        return message
    role, content = _SHAREGPT_ROLES.get(str(message["from"]), message["from"]), message.get("value")
    rest = {name: value for name, value in message.items() if name not in ("from", "value")}
    if role != "function_call":
        return {**rest, "role": role, "content": content}
    try:
        call = json.loads(str(content))
    except (ValueError, RecursionError):
        raise TraceFault("a message from 'function_call' is not the JSON of a call") from None
    calls = call if isinstance(call, list) else [call]
    return {**rest, "role": "assistant", "content": "", "tool_calls": [{"function": one} for one in calls]}


def _as_messages(value: Any, role: str) -> list[Any]:
    """Return messages; a plain text becomes one message of the given role.

    Raises:
        TraceFault: If the value is neither text nor a list.
    """
    if not isinstance(value, str | list | None):
        raise TraceFault(f"the {role}'s part is neither text nor messages")
    return [{"role": role, "content": value}] if isinstance(value, str) else list(value or ())
