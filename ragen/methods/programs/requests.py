"""The body of a request for a chat completion, read within limits: a program may be anybody's.

    body -> `read_request` -> ChatRequest, or Refusal

Responses are sampled as the run's settings say, or they could not be trained on.
"""

import json
import re
import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import MARK, REPLACEMENT
from starpo.ragen.methods.programs.album import Album
from starpo.ragen.methods.programs.chat import (
    ANY_TOOL,
    Call,
    ChatMessage,
    ChatRequest,
    Refusal,
    Requirement,
    RunSampling,
    spelled,
)
from starpo.ragen.methods.programs.settings import MODEL

MAX_VALUES = 50_000
"""Maximum number of values in a body."""
MAX_MESSAGES = 2_000

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
_Object = dict[str, Any]
_Many = Field(None, max_length=256)


class _Text(BaseModel):
    type: Literal["text"]
    text: str


class _Url(BaseModel):
    url: str
    detail: Literal["auto"] | None = None


class _Refused(BaseModel):
    type: Literal["refusal"]
    refusal: str


class _Picture(BaseModel):
    type: Literal["image_url"]
    image_url: _Url


class _Function(BaseModel):
    name: _Name
    arguments: str | _Object = ""


class _Call(BaseModel):
    id: str | None = None
    function: _Function


_Part = Annotated[_Text | _Refused | _Picture, Field(discriminator="type")]


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[_Part], Field(fail_fast=True, max_length=1024)] | None = None
    tool_calls: Annotated[list[_Call], Field(fail_fast=True)] | None = _Many
    tool_call_id: str | None = None


class _Declaration(BaseModel):
    name: _Name
    description: str | None = None
    parameters: _Object | None = None


class _Tool(BaseModel):
    type: Literal["function"]
    function: _Declaration


def _as_sent(tool: Any, check: ValidatorFunctionWrapHandler) -> _Object:
    check(tool)
    return tool  # with fields and their order as the program chose them: the template shows them so


class _NamedFunction(BaseModel):
    name: str


class _ToolChoice(BaseModel):
    type: Literal["function"]
    function: _NamedFunction


class _Schema(BaseModel):
    definition: _Object = Field({}, alias="schema")


class _Format(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None


class _Body(BaseModel):
    """All parameters that are known. Those of type `Any` do not concern what is sampled, and have no effect."""

    model_config = ConfigDict(extra="allow")

    model: Literal[MODEL]  # type: ignore[valid-type]
    messages: Annotated[list[_Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[Annotated[_Tool, WrapValidator(_as_sent)]], Field(fail_fast=True)] | None = _Many
    tool_choice: Literal["auto", "none", "required"] | _ToolChoice | None = None
    response_format: _Format | None = None
    stream: bool | None = None
    stream_options: _Object | None = None
    stop: str | Annotated[list[Annotated[str, Field(min_length=1)]], Field(fail_fast=True)] | None = Field(
        None, max_length=16
    )
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    n: Literal[1] | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    min_p: float | None = None
    top_k: int | None = None
    logit_bias: _Object | None = None
    seed: int | None = None
    modalities: list[Literal["text"]] | None = Field(None, max_length=1)
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    parallel_tool_calls: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    prompt_cache_options: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A JSON string, or an unclosed one to the end."""
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 100, 100
_NEUTRAL: dict[str, Any] = {
    "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1, "min_p": 0, "top_k": -1, "logit_bias": {},
}  # fmt: skip
"""Sampling settings beside temperature and top_p, with the values that change nothing."""


def read_request(body: bytes, run: RunSampling, album: Album | None = None) -> ChatRequest:
    """Read the body of a request.

    Args:
        body: JSON, as sent.
        run: How responses are sampled.
        album: Reads its images; None: it may have none.

    Raises:
        Refusal: If it is no request, or asks for something that is not served.
    """
    check_size(body)
    try:
        parsed = _Body.model_validate_json(body)
    except ValidationError as error:
        raise refusal(error) from None
    for name in parsed.model_extra or ():
        message = f"{name[:200]} is not supported: leave it out"
        raise Refusal(message, code="unsupported_parameter", param=name[:100])
    calls = [call.function.arguments for message in parsed.messages for call in message.tool_calls or ()]
    check_size("".join(text for text in calls if isinstance(text, str)).encode("utf-8", "replace"))
    tools: Sequence[Any] = () if parsed.tool_choice == "none" else parsed.tools or ()
    names = _distinct([tool["function"]["name"] for tool in tools])
    limits = [limit for limit in (parsed.max_tokens, parsed.max_completion_tokens) if limit is not None]
    return ChatRequest(
        messages=tuple(_message(number, message, album) for number, message in enumerate(parsed.messages)),
        tools=json.dumps(tools, ensure_ascii=False),
        tool_names=names,
        max_tokens=min(limits, default=None),
        stops=tuple([parsed.stop] if isinstance(parsed.stop, str) else parsed.stop or ()),
        is_streamed=bool(parsed.stream),
        has_usage=bool((parsed.stream_options or {}).get("include_usage")),
        has_logprobs=bool(parsed.logprobs),
        requirement=_requirement(parsed, names),
        overridden=_overridden(parsed, run),
    )


def check_size(body: bytes) -> None:
    """Refuse a body of too many values before any of them is read, since each takes 50 times its bytes.

    Raises:
        Refusal: If strings, and commas outside of them, are more than `MAX_VALUES`.
    """
    if body.count(b",") + body.count(b'"') // 2 <= MAX_VALUES:  # cheap, and true of all but texts full of both
        return
    num_values = end = 0
    for string in _STRING.finditer(body):
        num_values += 1 + body.count(b",", end, string.start())
        end = string.end()
        if num_values > MAX_VALUES:
            break
    if num_values + body.count(b",", end) > MAX_VALUES:
        message = f"the body has more than {MAX_VALUES:,} values, which no conversation has"
        raise Refusal(message, code="body_too_large", status=413)


def _requirement(parsed: _Body, names: tuple[str, ...]) -> Requirement:
    """Return the form that a request requires.

    Raises:
        Refusal: If it requires a call of a tool that it does not declare.
    """
    choice = parsed.tool_choice
    if choice == "required" or isinstance(choice, _ToolChoice):
        tool = ANY_TOOL if isinstance(choice, str) else choice.function.name
        if not names or tool not in (ANY_TOOL, *names):
            known = ", ".join(names)[:200] or "none"
            wanted = "a tool" if tool == ANY_TOOL else f"the tool {tool[:100]}"
            raise Refusal(
                f"tool_choice requires a call of {wanted}; the tools declared are: {known}", param="tool_choice"
            )
        return Requirement(tool=tool)
    form = parsed.response_format
    if form is None or form.type == "text":
        return Requirement()
    if form.type == "json_schema" and form.json_schema is None:
        raise Refusal("response_format.json_schema is missing, which holds the schema", param="response_format")
    schema = form.json_schema.definition if form.type == "json_schema" and form.json_schema else {}
    return Requirement(True, json.dumps(schema, ensure_ascii=False) if schema else "")


def _overridden(parsed: _Body, run: RunSampling) -> tuple[str, ...]:
    """Return the names of sampling settings that differ from the run's.

    Raises:
        Refusal: If they must agree.
    """
    neutral = {"temperature": run.temperature, "top_p": run.top_p, **_NEUTRAL}
    differing = {
        name: given
        for name, value in neutral.items()
        if None not in (value, given := getattr(parsed, name)) and not _is_equal(given, value)
    }
    if run.must_agree and differing:
        name, given = next(iter(differing.items()))
        raise Refusal(
            f"{name} = {_SHORT.repr(given)[:100]} is not that of this run, {neutral[name]!r} "
            f"(environment.sampling = 'refuse'). Leave {name} out",
            param=name,
        )
    return (*differing, *(["seed"] if parsed.seed is not None else []))


def _is_equal(given: Any, value: Any) -> bool:
    return given == value if isinstance(value, dict) else abs(given - value) <= 1e-6  # NaN is equal to nothing


def refusal(error: ValidationError) -> Refusal:
    """Return a refusal that says in one sentence what is wrong, of all alternatives the one that came furthest."""
    first = max(error.errors(include_url=False, include_context=False), key=lambda one: len(one["loc"]))
    parts = [str(part) for part in first["loc"]]
    # The names of types between them, such as 'list[...]', are no place in the body.
    place = ".".join(part for part in parts if part.isalnum() or (part.isidentifier() and part[0] != "_"))[:200]
    place = place.replace(".str.", ".").removesuffix(".str")
    if not place:
        return Refusal(f"the body is no JSON object of a request: {first['msg']}", code="invalid_json")
    param = str(first["loc"][0])[:100]
    return Refusal(f"{place} is {_SHORT.repr(first['input'])[:100]}. {first['msg']}", param=param)


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
            text = part.refusal if isinstance(part, _Refused) else part.text
            texts.append(text if is_plain else text.replace(MARK, REPLACEMENT))
    calls = [
        Call(
            call.function.name,
            spelled(_arguments(f"messages.{number}.tool_calls.{index}", call.function)),
            call.id or "",
        )
        for index, call in enumerate(message.tool_calls or ())
    ]
    return ChatMessage(
        "system" if message.role == "developer" else message.role,
        "".join(texts),
        tuple(calls) if message.role == "assistant" else (),
        tuple(images),
        message.tool_call_id or "",
    )


def _arguments(place: str, function: _Function) -> Mapping[str, Any]:
    """Return the arguments of a call, which programs send as JSON in a text, or as an object.

    Raises:
        Refusal: If they are no object.
    """
    given = function.arguments or {}
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError) as error:
        message = f"{place}.function.arguments is {_SHORT.repr(given)}, which is no JSON: {error}"
        raise Refusal(message, param="messages") from None
    if not isinstance(arguments, dict):
        raise Refusal(f"{place}.function.arguments is {_SHORT.repr(given)}; expected an object", param="messages")
    return arguments


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


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    repeated = next((name for name, number in Counter(names).items() if number > 1), None)
    if repeated is not None:
        raise Refusal(f"two tools are named '{repeated}': give each a name of its own", param="tools")
    return tuple(names)
