"""Messages as token ids, by the model's own chat template and with text that cannot forge a turn.

    messages, tools -> their shape -> the template, rendered with a marker for every text -> cut at the markers
        -> the template's pieces encoded with its special tokens, the texts without

A template is rendered once for each shape (roles, which messages have text, numbers of tool calls), so that a call of a
program costs no rendering. For what the built-in loop sends, the ids are those of `agents.prompting.context.Context`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.rendering import render
from starpo.ragen.core.errors import TemplateError
from starpo.ragen.methods.programs.chat import ChatMessage, Refusal
from starpo.ragen.methods.programs.tool_calls import write_calls

_MARKER = re.compile(r'zq(\d{5})qx|"?zv(\d{5})qx"?')
"""A text, or the arguments of a call: these are an object, so quotes that the template puts around them go."""
_USER, _CALL = {"role": "user", "content": "probe"}, "probe_tool"
_CACHED_SHAPES, _CACHED_TEXTS = 1024, 8192


class Insert(NamedTuple):
    """A text to insert: its number, and whether the template writes it as a JSON string."""

    number: int
    is_quoted: bool


Part = str | Insert
"""Text of the template, or a text to insert."""


class Spelling:
    """The chat template of one policy. Used by one thread at a time.

    Attributes:
        takes_tools: Whether it shows the tools that are declared.
        call_form: Form in which tool calls are written (`tool_calls`): the template's own, 'hermes' if it shows none.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, contexts: ContextBuilder) -> None:
        self._tokenizer = tokenizer
        self._contexts = contexts
        self._ends = [end.text for end in contexts.pieces.ends]
        self._tag_ids = contexts.earlier.generation_ids[len(contexts.pieces.generation_ids) :]
        special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._special = {*special, *self._ends}
        self._parts = lru_cache(_CACHED_SHAPES)(self._render)
        self._template_ids = lru_cache(_CACHED_TEXTS)(self._encode_template)
        self.takes_tools, self._shows_calls, self.call_form = self._probe_tools()

    def opening(self, messages: Sequence[ChatMessage], tools: str) -> list[int]:
        """Return the ids of a whole conversation, up to the beginning of the response.

        Raises:
            Refusal: If the template does not take the messages.
        """
        agent = self._contexts.agent
        if agent.template_system_prompt == "empty" and messages[0].role != "system":
            messages = [ChatMessage("system", ""), *messages]
        if not self._shows_calls:
            messages = [_with_calls_as_text(message) for message in messages]
        shape, texts = _shape_of(messages, agent.system_prompt), _texts_of(messages, agent.system_prompt)
        if agent.earlier_thoughts == "dropped":
            texts = self._without_thoughts(messages, texts)
        return [*self._ids(self._checked_parts(shape, tools, False), texts), *self._tag_ids]

    def continuation(self, last_id: int, has_called: bool, messages: Sequence[ChatMessage], tools: str) -> list[int]:
        """Return the ids to append to a context that ends with a response.

        Args:
            last_id: Last id of the response.
            has_called: Whether it called tools.
            messages: The messages after it.
            tools: The tools of the conversation.

        Raises:
            Refusal: If the template does not take the messages.
        """
        has_called = has_called and self._shows_calls
        shape = (("assistant", not has_called, int(has_called), ""), *_shape_of(messages, ""))
        lead = [_CALL, "{}"] if has_called else [""]
        ids = self._ids(self._checked_parts(shape, tools, True), [*lead, *_texts_of(messages, "")])
        return [*(ids[1:] if last_id == ids[0] else ids), *self._tag_ids]

    def _checked_parts(self, shape: tuple[Any, ...], tools: str, is_continuation: bool) -> tuple[Part, ...]:
        if tools != "[]":
            if not self.takes_tools:
                raise Refusal(
                    "the chat template of this policy has no place for tools: take a model whose template has one, or "
                    "set agent.chat_template",
                    code="tools_not_supported",
                    param="tools",
                )
            forged = next((text for text in self._special if text in tools), None)
            if forged is not None:
                raise Refusal(f"the tools contain {forged}, a special token of this policy", param="tools")
        found = self._parts(shape, tools, is_continuation)
        if isinstance(found, str):
            raise Refusal(found, param="messages")
        return found

    def _render(self, shape: tuple[Any, ...], tools: str, is_continuation: bool) -> tuple[Part, ...] | str:
        """Return the parts of a shape, or why the template does not take it."""
        messages = list(_marked(shape))
        text, problem = self._rendered([_USER, *messages] if is_continuation else messages, tools)
        if problem:
            roles = ", ".join(dict.fromkeys(message["role"] for message in messages))
            return f"the chat template of this policy refuses messages of the roles {roles}: {problem}"[:500]
        first = 0
        if is_continuation:  # what follows the response, from the token that ends it
            last = 1 if shape[0][2] else 0
            place = max((found.end() for found in _MARKER.finditer(text) if _number(found) <= last), default=0)
            place = min((at for end in self._ends if (at := text.find(end, place)) >= 0), default=-1)
            if place < 0:
                return "the chat template of this policy does not end the assistant's message"
            text, first = text[place:], last + 1
        parts = tuple(_cut(text))
        shown = [part.number for part in parts if isinstance(part, Insert)]
        if sorted(shown) != list(range(first, _num_texts(shape))):
            return "the chat template of this policy does not show every message's text once"
        return parts

    def _rendered(self, messages: Sequence[dict[str, Any]], tools: str) -> tuple[str, str]:
        declared = json.loads(tools) or None
        agent = self._contexts.agent
        try:
            template = self._tokenizer.get_chat_template(agent.chat_template or None, declared)
            variables = {"tools": declared, "documents": None, **self._tokenizer.special_tokens_map}
            return render(template, [messages], variables)[0]
        except TemplateError as error:  # its limits
            return "", str(error)

    def _ids(self, parts: Sequence[Part], texts: Sequence[str]) -> list[int]:
        ids: list[int] = []
        for part in parts:
            if isinstance(part, str):
                ids += self._template_ids(part)
            else:
                text = texts[part.number]
                ids += self._contexts.encode_text(
                    json.dumps(text, ensure_ascii=False)[1:-1] if part.is_quoted else text
                )
        return ids

    def _encode_template(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _without_thoughts(self, messages: Sequence[ChatMessage], texts: list[str]) -> list[str]:
        """Return the texts with the assistant's as templates show them that drop earlier reasoning."""
        spoken = {message.content for message in messages if message.role == "assistant"}
        return [self._contexts.pieces.without_thought(text) if text in spoken else text for text in texts]

    def _probe_tools(self) -> tuple[bool, bool, str]:
        """Find out whether the template shows tools and calls, and the form of calls."""
        function = {"name": _CALL, "description": "", "parameters": {"type": "object", "properties": {}}}
        tools = json.dumps([{"type": "function", "function": function}])
        text, _ = self._rendered([_USER], tools)
        name, given = "zq00000qx", {"zq00001qx": 1}
        call = {"type": "function", "id": "call00000", "function": {"name": name, "arguments": given}}
        called, _ = self._rendered([_USER, {"role": "assistant", "content": "", "tool_calls": [call]}], tools)
        shows_calls = name in called and "zq00001qx" in called
        form = "llama" if shows_calls and "<tool_call>" not in called else "hermes"
        return _CALL in text, shows_calls, form


def _with_calls_as_text(message: ChatMessage) -> ChatMessage:
    texts = [write_calls(message.calls)] if message.calls else []
    return ChatMessage(message.role, "\n".join(filter(None, [message.content, *texts])))


def _shape_of(messages: Sequence[ChatMessage], own_system_prompt: str) -> tuple[Any, ...]:
    """Return (role, whether it has text, number of calls, text that is the template's) of each message."""
    return tuple(
        (message.role, bool(message.content), len(message.calls), _own(message, own_system_prompt))
        for message in messages
    )


def _own(message: ChatMessage, own_system_prompt: str) -> str:
    # The settings' system prompt is encoded together with the template, as in the built-in loop.
    return message.content if message.role == "system" and message.content == own_system_prompt else ""


def _texts_of(messages: Sequence[ChatMessage], own_system_prompt: str) -> list[str]:
    """Return the texts to insert, in the order of their markers."""
    texts = []
    for message in messages:
        if message.content and not _own(message, own_system_prompt):
            texts.append(message.content)
        for call in message.calls:
            texts += [call.name, call.arguments]
    return texts


def _num_texts(shape: tuple[Any, ...]) -> int:
    return sum((has_text and not own) + 2 * num_calls for _, has_text, num_calls, own in shape)


def _marked(shape: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Yield messages of this shape, with a numbered marker for every text."""
    number = 0

    def marker(kind: str = "zq") -> str:
        nonlocal number
        number += 1
        return f"{kind}{number - 1:05d}qx"

    for role, has_text, num_calls, own in shape:
        message: dict[str, Any] = {"role": role, "content": own or (marker() if has_text else "")}
        if num_calls:
            message["tool_calls"] = [
                {"type": "function", "id": "call00000", "function": {"name": marker(), "arguments": marker("zv")}}
                for _ in range(num_calls)
            ]
        if role == "tool":
            message["tool_call_id"] = "call00000"
        yield message


def _cut(text: str) -> Iterator[Part]:
    """Yield the template's pieces and the numbers of the markers between them."""
    place = 0
    for found in _MARKER.finditer(text):
        if found.start() > place:
            yield text[place : found.start()]
        around = text[found.start() - 1 : found.start()] + text[found.end() : found.end() + 1]
        yield Insert(_number(found), is_quoted=found[1] is not None and around == '""')
        place = found.end()
    if place < len(text):
        yield text[place:]


def _number(marker: re.Match[str]) -> int:
    return int(marker[1] or marker[2])
