"""Requests for chat completions: what a program may ask for, read into values that can be compared.

    body of a request -> `read_request` -> ChatRequest, or Refusal

A program may be anybody's, so a body is untrusted data of any shape. What would change the distribution that responses
are sampled from, and hence what is trained on, is refused with a reason rather than ignored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json, PositiveInt, ValidationError

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import MARK, REPLACEMENT
from starpo.ragen.methods.programs.album import Album
from starpo.ragen.methods.programs.settings import MODEL


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

    def plain(self) -> list[dict[str, str]]:
        """Return roles and texts, for servers that apply a chat template themselves."""
        return [{"role": message.role, "content": message.content} for message in self.messages]


_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
_Object = dict[str, Any]
_Many = Field(None, max_length=256)


class _Text(BaseModel):
    type: Literal["text"]
    text: str


class _Url(BaseModel):
    url: str
    detail: Literal["auto"] | None = None


class _Picture(BaseModel):
    type: Literal["image_url"]
    image_url: _Url


class _Function(BaseModel):
    name: _Name
    arguments: Json[_Object] | _Object | Literal[""] = ""


class _Call(BaseModel):
    id: str | None = None
    function: _Function


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Annotated[_Text | _Picture, Field(discriminator="type")]] | None = None
    tool_calls: list[_Call] | None = _Many
    tool_call_id: str | None = None


class _Declaration(BaseModel):
    name: _Name
    description: str | None = None
    parameters: _Object | None = None


class _Tool(BaseModel):
    type: Literal["function"]
    function: _Declaration


class _Body(BaseModel):
    """All parameters that are accepted. Those of type `Any` do not concern what is sampled, and have no effect."""

    model_config = ConfigDict(extra="forbid")

    model: Literal[MODEL]  # type: ignore[valid-type]
    messages: list[_Message] = Field(min_length=1, max_length=10_000)
    tools: list[_Tool] | None = _Many
    tool_choice: Literal["auto", "none"] | None = None  # what is sampled can be forced to nothing
    stream: bool | None = None
    stream_options: _Object | None = None
    stop: str | list[Annotated[str, Field(min_length=1)]] | None = Field(None, max_length=16)
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logit_bias: _Object | None = Field(None, max_length=0)
    response_format: dict[Literal["type"], Literal["text"]] | None = None
    modalities: list[Literal["text"]] | None = None
    user: Any = None
    metadata: Any = None
    store: Any = None
    seed: Any = None
    service_tier: Any = None
    parallel_tool_calls: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None


def read_request(
    body: bytes, temperature: float | None, top_p: float | None, album: Album | None = None
) -> ChatRequest:
    """Read the body of a request.

    Args:
        body: JSON, as sent.
        temperature: The run's; a request may name this one only. None: any is accepted, without effect.
        top_p: Likewise.
        album: Reads its images; None: it may have none.

    Raises:
        Refusal: If it is no request, or asks for something that is not served.
    """
    try:
        asked = _Body.model_validate_json(body)
    except ValidationError as error:
        raise refusal(error) from None
    for name, own in (("temperature", temperature), ("top_p", top_p)):
        given = getattr(asked, name)
        if None not in (own, given) and not abs(given - own) <= 1e-6:  # NaN is none, either
            raise Refusal(
                f"{name} = {given} is not that of this run, {own:g}: responses are sampled as the run's settings say, "
                f"or they could not be trained on. Leave {name} out",
                param=name,
            )
    tools = [] if asked.tool_choice == "none" else asked.tools or []
    limits = [limit for limit in (asked.max_tokens, asked.max_completion_tokens) if limit is not None]
    return ChatRequest(
        messages=tuple(_message(number, message, album) for number, message in enumerate(asked.messages)),
        tools=json.dumps([_declaration(tool.function) for tool in tools], ensure_ascii=False),
        tool_names=tuple(tool.function.name for tool in tools),
        max_tokens=min(limits, default=None),
        stops=tuple([asked.stop] if isinstance(asked.stop, str) else asked.stop or ()),
        is_streamed=bool(asked.stream),
        has_usage=bool((asked.stream_options or {}).get("include_usage")),
    )


def refusal(error: ValidationError) -> Refusal:
    """Return a refusal that says in one sentence what is wrong, of all alternatives the one that came furthest."""
    found = max(error.errors(include_url=False), key=lambda one: len(one["loc"]))
    place = ".".join(str(part) for part in found["loc"])[:200]
    if not place:
        return Refusal(f"the body is no JSON object of a request: {found['msg']}", code="invalid_json")
    param = str(found["loc"][0])[:100]
    if found["type"] == "extra_forbidden":
        return Refusal(f"{place} is not supported: leave it out", code="unsupported_parameter", param=param)
    return Refusal(f"{place} is {repr(found['input'])[:100]}. {found['msg']}", param=param)


def _message(number: int, message: _Message, album: Album | None) -> ChatMessage:
    content, images = message.content or "", []
    parts = [_Text(type="text", text=content)] if isinstance(content, str) else content
    texts = []
    for index, part in enumerate(parts):
        if isinstance(part, _Picture):
            images.append(_image(f"messages.{number}.content.{index}", message.role, part.image_url.url, album))
            texts.append(MARK)
        else:  # no text can pass for an image; without images, a mark is any character
            is_plain = album is None or message.role == "assistant"
            texts.append(part.text if is_plain else part.text.replace(MARK, REPLACEMENT))
    calls = [
        Call(call.function.name, spelled(call.function.arguments or {}), call.id or "")
        for call in message.tool_calls or ()
    ]
    return ChatMessage(
        "system" if message.role == "developer" else message.role,
        "".join(texts),
        tuple(calls) if message.role == "assistant" else (),
        tuple(images),
        message.tool_call_id or "",
    )


def _image(place: str, role: str, url: str, album: Album | None) -> Image:
    if album is None:
        raise Refusal(
            f"{place} is an image_url, and this endpoint takes no images: send text, or set agent.observation = "
            "'image' for a policy that sees them",
            param="messages",
        )
    if role == "assistant":
        raise Refusal(f"{place} is an image_url in a message of the assistant, which has none", param="messages")
    try:
        return album.image(url)
    except ValueError as error:
        raise Refusal(f"{place}: the image_url '{url[:50]}' is not served: {error}", param="messages") from None


def _declaration(function: _Declaration) -> dict[str, Any]:
    parameters = function.parameters or {"type": "object", "properties": {}}
    told = {"name": function.name, "description": function.description or "", "parameters": parameters}
    return {"type": "function", "function": told}


def spelled(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON with sorted keys."""
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)
