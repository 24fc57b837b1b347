"""Messages, calls and requests for chat completions as values that can be compared, and why one is refused.

A program's own sampling settings are without effect and named in a request's `overridden`; a form that it requires
becomes a sentence of the prompt (`Requirement`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from starpo.ragen.agents.vision.image import Image

ANY_TOOL = "*"
CALL_LIMIT = "call_limit_exceeded"
"""Code of the refusals of a trajectory that has had all its responses."""


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
        arguments: JSON object as text, its keys in the order in which they were written.
        id: What the answer to it refers to.
        values: The arguments with sorted keys: a client that sends a call back may have sorted them.
    """

    name: str
    arguments: str = field(compare=False)
    id: str = field(default="", compare=False)
    values: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", json.dumps(json.loads(self.arguments), sort_keys=True))


@dataclass(frozen=True)
class ChatMessage:
    """A message, as far as the model sees it; two messages are equal if they show the model the same.

    Attributes:
        role: 'system', 'user', 'assistant' or 'tool'.
        content: Its text; '' if it has none. Marks (`agents.vision.image_tokens.MARK`) are the places of its images.
        calls: Tool calls of the assistant.
        images: Images of any other role; if there are none, a mark is text.
        call_id: Id of the call that a message of the role 'tool' answers; no part of what the model sees.
    """

    role: str
    content: str
    calls: tuple[Call, ...] = ()
    images: tuple[Image, ...] = ()
    call_id: str = field(default="", compare=False)

    def as_json(self) -> dict[str, Any]:
        """Return role, content and, if there are any, calls and digests of images, for storage and display."""
        calls = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in self.calls]
        more = {"tool_calls": calls, "images": [image.digest for image in self.images]}
        return {"role": self.role, "content": self.content} | {name: value for name, value in more.items() if value}


def spelled(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON."""
    return json.dumps(arguments, ensure_ascii=False)


def instructed(messages: tuple[ChatMessage, ...], instruction: str) -> tuple[ChatMessage, ...]:
    """Return messages with an instruction at the end of the last one, or in one of the user's after the assistant's."""
    if not instruction:
        return messages
    *before, last = messages
    if last.role == "assistant":
        return (*messages, ChatMessage("user", instruction))
    return (*before, replace(last, content=f"{last.content}\n\n{instruction}" if last.content else instruction))


@dataclass(frozen=True)
class RunSampling:
    """How the responses to a trajectory are sampled, whatever its program asks for.

    Attributes:
        temperature: The run's; None: this trajectory's own, which the program need not know.
        top_p: Likewise.
        must_agree: Whether a request that asks for something else is refused.
    """

    temperature: float | None = None
    top_p: float | None = None
    must_agree: bool = False


@dataclass(frozen=True)
class Requirement:
    """The form that a request requires of its response: stated at the end of its prompt, and never enforced.

    Enforcing it while sampling would change the log-probs, and hence what is trained on.

    Attributes:
        is_json: Whether the response is to be a JSON object.
        schema: JSON schema that the object is to match, as JSON; '' if there is none.
        tool: Tool that is to be called, `ANY_TOOL` for one of them; '' if none need be.
    """

    is_json: bool = False
    schema: str = ""
    tool: str = ""

    @property
    def name(self) -> str:
        """What is required in a word, as `info` has it: '', 'json_object', 'json_schema' or 'tool_call'."""
        if self.tool:
            return "tool_call"
        return ("json_schema" if self.schema else "json_object") if self.is_json else ""

    @property
    def instruction(self) -> str:
        """The sentence in the prompt; '' if nothing is required."""
        if self.tool:
            return "Respond by calling " + ("a tool." if self.tool == ANY_TOOL else f"the tool {self.tool}.")
        if not self.is_json:
            return ""
        wanted = "Respond with one JSON object and nothing else."
        return f"{wanted} It must match this JSON schema:\n{self.schema}" if self.schema else wanted

    def is_met(self, content: str, calls: "tuple[Call, ...]") -> bool:
        """Whether a response has this form; a schema is not evaluated, since it is the program's and may be hostile."""
        if self.tool:
            return any(self.tool in (ANY_TOOL, call.name) for call in calls)
        return not self.is_json or bool(calls) or _is_object(content)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@dataclass(frozen=True)
class ChatRequest:
    """A request that can be served.

    Attributes:
        messages: The conversation, at least one message.
        tools: JSON of the tools' declarations, as sent; '[]' if there are none.
        tool_names: Names of the tools.
        max_tokens: Maximum length of the response; None: the run's.
        stops: Texts before which the response is cut off.
        is_streamed: Whether the answer is sent as events.
        has_usage: Whether the last event reports the numbers of tokens.
        has_logprobs: Whether the answer reports the log-prob of every token.
        requirement: The form of the response.
        overridden: Names of its sampling settings that differ from the run's, and have no effect.
    """

    messages: tuple[ChatMessage, ...]
    tools: str = "[]"
    tool_names: tuple[str, ...] = ()
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    is_streamed: bool = False
    has_usage: bool = False
    has_logprobs: bool = False
    requirement: Requirement = Requirement()
    overridden: tuple[str, ...] = ()

    def plain(self) -> list[dict[str, str]]:
        """Return roles and texts, for servers that apply a chat template themselves."""
        shown = instructed(self.messages, self.requirement.instruction)
        return [{"role": message.role, "content": message.content} for message in shown]
