"""Messages as token ids, by the model's own chat template and with text that cannot forge a turn.

    messages, tools -> marked: every text is a marker -> the template, rendered once -> cut at the markers
        -> ids of the template's pieces with its special tokens, and of the texts without (`ChatEncoder`)

A template is rendered once for all conversations that differ in their texts alone, so that a call of a program costs no
rendering. For what the built-in loop sends, the ids are those of `agents.prompting.context.Context`. The tokens of
images stand at their marks in a text.

Arguments of calls are given to the template as an object, as servers do, or as text where it takes that alone. Where it
writes them as JSON, all of them are one marker; where it writes each by itself, each has its own.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.chat_template import template_source
from starpo.ragen.agents.prompting.context import ContextBuilder, TurnPrompt
from starpo.ragen.agents.prompting.encoding import PromptWriter
from starpo.ragen.agents.prompting.probes import shown_before_results, trimmed_roles
from starpo.ragen.agents.prompting.rendering import render
from starpo.ragen.agents.prompting.shown import message_of
from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.config.agent import CHAT_TEMPLATES
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.context_fit import tokenizer_and_positions
from starpo.ragen.core.errors import PolicyError, TemplateError
from starpo.ragen.envs.grammar import Tool
from starpo.ragen.methods.programs.chat import Call, ChatMessage, Refusal
from starpo.ragen.methods.programs.tool_calls import FORMS, parse_calls

_MARKER = re.compile(
    r"""zq(?P<raw>\d+)\\"qx|zq(?P<json>\d+)\\{3}"qx|'zq(?P<python>\d+)\\{2}"qx'"""  # a text, by how it is quoted
    r"""|\{"zv(?P<object>\d+)qx": 0\}|zv(?P<plain>\d+)qx"""  # the arguments of a call
    r"""|97310(?P<number>\d+)01379"""
)
_USER = {"role": "user", "content": "user probe"}
_CACHED = 1024
MAX_TOOLS_CHARS = 200_000
"""Declarations of all tools of a request, as JSON: some 50,000 tokens."""
_ID = "call00000"
_PROBE_CALL = Call("probe_tool", '{"first": "some text", "second": 7}')
_PROBE_TOOLS = json.dumps(
    [{"type": "function", "function": {"name": _PROBE_CALL.name, "description": "", "parameters": {
        "type": "object", "properties": {"first": {"type": "string"}, "second": {"type": "integer"}}}}}]
)  # fmt: skip


class Insert(NamedTuple):
    """A text to insert: its number, and the kind of its marker (a group of `_MARKER`)."""

    number: int
    kind: str


Text = tuple[str, tuple[Image, ...]]
"""A text to insert, and the images at its marks."""
Part = str | Insert
"""Text of the template, or a text to insert."""
Message = dict[str, Any]
"""A message as templates take it."""


class Spelling:
    """The chat template of one policy. May be shared between threads.

    Attributes:
        is_verbatim: Whether it shows responses as they were sampled, whatever follows.
        takes_tools: Whether it shows the tools that are declared.
        call_form: Form in which it writes tool calls (`tool_calls.FORMS`); '' if in none of these.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, contexts: ContextBuilder) -> None:
        self._tokenizer = tokenizer
        self._contexts = contexts
        self._ends = [end.text for end in contexts.pieces.ends]
        self._tag = contexts.earlier.generation.removeprefix(contexts.pieces.generation)
        # What the template makes of responses before the last message of a user, and after it.
        shown, tool = contexts.pieces.shown, Tool(_PROBE_CALL.name, "", {})
        in_loop = shown_before_results(tokenizer, contexts.agent, tool, shown.has_field)
        self._shown = shown, in_loop or shown
        self.is_verbatim = shown.is_verbatim
        self._trimmed = trimmed_roles(tokenizer, contexts.agent, tool)
        self._special = {*contexts.encoder.marks, *self._ends}
        self._parts = lru_cache(_CACHED)(self._render)
        declared, _ = self._rendered([_USER], _PROBE_TOOLS)
        self.takes_tools = _PROBE_CALL.name in declared
        self.call_form, self._takes_text, self._writes_json = self._calls(declared.rpartition(_USER["content"])[2])

    def _calls(self, generation: str) -> tuple[str, bool, bool]:
        """Return the form of calls, whether arguments have to be text, and whether they are written as JSON.

        Args:
            generation: What the template writes between a user message and a response.
        """
        result = {"role": "tool", "tool_call_id": _ID, "content": "result"}
        for takes_text in (False, True):
            arguments = _PROBE_CALL.arguments if takes_text else json.loads(_PROBE_CALL.arguments)
            call = {"type": "function", "id": _ID, "function": {"name": _PROBE_CALL.name, "arguments": arguments}}
            called = {"role": "assistant", "content": "", "tool_calls": [call]}
            text, _ = self._rendered([_USER, called, result], _PROBE_TOOLS)
            text = text.rpartition(_USER["content"])[2].removeprefix(generation)
            text = text[: self._end(text, text.find("7"))]
            for form in FORMS:
                if parse_calls(text, form, _PROBE_TOOLS)[1] == (_PROBE_CALL,):
                    return form, takes_text, _PROBE_CALL.arguments in text
        return "", False, True

    def opening(self, messages: Sequence[ChatMessage], tools: str) -> TurnPrompt:
        """Return a whole conversation, up to the beginning of the response.

        Raises:
            Refusal: If the template does not take the messages, or the policy their images.
        """
        agent = self._contexts.agent
        if agent.template_system_prompt == "empty" and messages[0].role != "system":
            messages = [ChatMessage("system", ""), *messages]
        return self._ids(*self._marked(messages, agent.system_prompt), tools)

    def shows_as_sampled(self, ids: list[int], opening_ids: list[int]) -> bool:
        """Whether a context that goes on from sampled ids has the text of the conversation as the template writes it.

        Args:
            ids: The context that goes on.
            opening_ids: Those of `opening` for all its messages.
        """
        return bool(self._tokenizer.decode(ids) == self._tokenizer.decode(opening_ids))

    def continuation(self, last_id: int, has_called: bool, messages: Sequence[ChatMessage], tools: str) -> TurnPrompt:
        """Return what to append to a context that ends with a response.

        Args:
            last_id: Last id of the response.
            has_called: Whether it called tools.
            messages: The messages after it.
            tools: The tools of the conversation.

        Raises:
            Refusal: If the template does not take the messages, or the policy their images.
        """
        response = ChatMessage("assistant", "", (_PROBE_CALL,)) if has_called else ChatMessage("assistant", "probe")
        marked, texts, thoughts = self._marked([response, *messages])
        num_before = len(self._marked([response])[1])
        return self._ids([_USER, *marked], texts, thoughts, tools, num_before, last_id)

    def _marked(
        self, messages: Sequence[ChatMessage], own_system_prompt: str = ""
    ) -> tuple[list[Message], list[Text], frozenset[int]]:
        """Return messages with a numbered marker for every text, the texts, and the numbers of those that are
        reasoning, which the template may drop."""
        marked: list[Message] = []
        texts: list[Text] = []
        thoughts: set[int] = set()
        last_user = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
        for place, message in enumerate(messages):
            thought, text, shown = None, message.content, self._shown[place > last_user]
            if message.role == "assistant" and shown.is_rewritten:
                thought, text = shown.split(text)
            elif message.role in self._trimmed:
                text = text.strip()
            if thought:
                thoughts.add(len(texts))
                thought = _mark(thought, texts)
            # The settings' system prompt is encoded together with the template, as in the built-in loop.
            is_own = message.role == "system" and message.content == own_system_prompt
            content = message.content if is_own else _mark(text, texts, message.images)
            one: Message = {"role": message.role, "content": content}
            if thought is not None:
                one = dict(message_of(f"<think>{thought}</think>{content}", shown.has_field))
            if message.calls:
                one["tool_calls"] = [self._marked_call(call, texts) for call in message.calls]
            marked.append(one | ({"tool_call_id": _ID} if message.role == "tool" else {}))
        return marked, texts, frozenset(thoughts)

    def _marked_call(self, call: Call, texts: list[Text]) -> Message:
        name = _mark(call.name, texts)
        if self._writes_json:
            marker = f"zv{len(texts)}qx"
            texts.append((call.arguments, ()))
            arguments: Any = marker if self._takes_text else {marker: 0}
        else:
            arguments = _mark(json.loads(call.arguments), texts)
        return {"type": "function", "id": _ID, "function": {"name": name, "arguments": arguments}}

    def _ids(
        self,
        marked: list[Message],
        texts: Sequence[Text],
        thoughts: frozenset[int],
        tools: str,
        num_before: int = 0,
        last_id: int | None = None,
    ) -> TurnPrompt:
        """Return the tokens of marked messages with these texts.

        Args:
            marked: The messages.
            texts: Text of every marker.
            thoughts: Numbers of those that are reasoning.
            tools: JSON of the declarations.
            num_before: Number of texts of a response that comes first: only what follows it is returned.
            last_id: Last id of that response: the first token is left out if it is this one.
        """
        if tools != "[]":
            self._check_tools(tools)
        parts = self._parts(json.dumps(marked), tools, num_before, len(texts), thoughts)
        if isinstance(parts, str):
            raise Refusal(f"the chat template of this policy {parts}", param="messages")
        writer = self._contexts.encoder.writer(last_id, is_first=not num_before, should_cache=False)
        placed: list[PlacedImage] = []
        for part in parts:
            if isinstance(part, str):
                writer.template(part)
            else:
                text, images = texts[part.number]
                placed += self._insert(writer, _quoted(text, part.kind), images)
        writer.template(self._tag)
        return TurnPrompt(writer.finish(), not num_before, tuple(placed))

    def _check_tools(self, tools: str) -> None:
        if len(tools) > MAX_TOOLS_CHARS:
            message = (
                f"the declarations of the tools have {len(tools):,} characters; the maximum is {MAX_TOOLS_CHARS:,}"
            )
            raise Refusal(message, code="context_length_exceeded", param="tools")
        if problem := self.tools_problem:
            raise Refusal(problem, code="tools_not_supported", param="tools")
        if forged := [text for text in self._special if text in tools]:
            raise Refusal(f"the tools contain {forged[0]}, a special token of this policy", param="tools")

    @property
    def tools_problem(self) -> str:
        """What to set so that tools can be declared, and why; '' if they can. Where it is cut off, that remains."""
        if self.takes_tools and self.call_form:
            return ""
        others = ", ".join(name for name in CHAT_TEMPLATES if name != "hermes")
        problem = f"writes calls in none of the forms that are read, which are {', '.join(FORMS)}"
        if not self.takes_tools:
            problem = "has no place for tools"
        return f"set agent.chat_template = 'hermes' (or {others}): the chat template of this policy {problem}"

    def _insert(self, writer: PromptWriter, text: str, images: tuple[Image, ...]) -> list[PlacedImage]:
        """Append a text with images at its marks; return the images with their places."""
        first, *others = text.split(MARK) if images else [text]
        writer.message(first)
        placed = []
        for image, after in zip(images, others, strict=True):
            try:
                placed.append(self._contexts.add_image(writer, image))
            except PolicyError as error:
                raise Refusal(str(error), param="messages") from None
            writer.message(after)
        return placed

    def _render(
        self, marked: str, tools: str, num_before: int, num_texts: int, thoughts: frozenset[int]
    ) -> tuple[Part, ...] | str:
        """Return the parts of marked messages, or why the template does not take them."""
        messages = json.loads(marked)
        text, problem = self._rendered(messages, tools)
        if problem:
            roles = ", ".join(dict.fromkeys(message["role"] for message in messages))
            return f"refuses messages of the roles {roles}: {problem}"[:500]
        if num_before:  # what follows the response, from the token that ends it
            spoken = [match.end() for match in _MARKER.finditer(text) if _insert(match).number < num_before]
            text = text[self._end(text, max(spoken, default=0)) :]
            if not text:
                return "does not end the assistant's message"
        parts = tuple(_cut(text))
        numbers = sorted(part.number for part in parts if isinstance(part, Insert))
        dropped = thoughts.difference(numbers)
        if numbers != [number for number in range(num_before, num_texts) if number not in dropped]:
            return "does not show every message's text once"
        return parts

    def _end(self, text: str, start: int) -> int:
        """Return the place of the first end token from a place on; the end of the text if there is none."""
        places = (text.find(end, max(start, 0)) for end in self._ends)
        return min((place for place in places if place >= 0), default=len(text))

    def _rendered(self, messages: Sequence[Mapping[str, Any]], tools: str) -> tuple[str, str]:
        """Return the text, or '' and the error."""
        declared = json.loads(tools) or None
        try:
            template = template_source(self._tokenizer, self._contexts.agent, declared)
            variables = {"tools": declared, "documents": None, **self._tokenizer.special_tokens_map}
            return render(template, [messages], variables)[0]
        except TemplateError as error:  # its limits
            return "", str(error)


def tools_line(config: StarPOConfig) -> str:
    """Say whether programs may declare tools, and how calls are read; for a model that is on this machine.

    Raises:
        StarPOError: If policy, tokenizer or template cannot be used.
    """
    loaded = tokenizer_and_positions(config)
    assert loaded is not None, "the model is on this machine"
    spelling = Spelling(loaded[0], ContextBuilder(loaded[0], config.agent, config.rollout.max_response_tokens))
    if problem := spelling.tools_problem:
        return f"tools: none can be declared. For a program that calls some, {problem}"
    return f"tools: the chat template declares them; calls are read in the form '{spelling.call_form}'"


def _mark(value: Any, texts: list[Text], images: tuple[Image, ...] = ()) -> Any:
    """Return a JSON value with a marker for every text and number, which are appended to `texts`."""
    if isinstance(value, dict):
        return {_mark(key, texts): _mark(entry, texts) for key, entry in value.items()}
    if isinstance(value, list):
        return [_mark(entry, texts) for entry in value]
    if isinstance(value, bool) or value in (None, ""):
        return value
    texts.append((value if isinstance(value, str) else json.dumps(value), images))
    number = f"{len(texts) - 1:05d}"
    return f'zq{number}\\"qx' if isinstance(value, str) else int(f"97310{number}01379")


def _cut(text: str) -> Iterator[Part]:
    """Yield the template's pieces and the texts to insert between them."""
    place = 0
    for match in _MARKER.finditer(text):
        if match.start() > place:
            yield text[place : match.start()]
        yield _insert(match)
        place = match.end()
    if place < len(text):
        yield text[place:]


def _insert(marker: re.Match[str]) -> Insert:
    kind = marker.lastgroup or ""
    return Insert(int(marker[kind]), kind)


def _quoted(text: str, kind: str) -> str:
    if kind == "python":
        return repr(text)
    return json.dumps(text, ensure_ascii=False)[1:-1] if kind == "json" else text
