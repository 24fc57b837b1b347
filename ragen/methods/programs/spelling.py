"""Messages as token ids, by the model's own chat template and with text that cannot forge a turn.

    messages, tools -> their shape -> the template, rendered with a marker for every text -> cut at the markers
        -> the template's pieces encoded with its special tokens, the texts without

A template is rendered once for each shape (roles, which messages have text, numbers of tool calls), so that a call of a
program costs no rendering. For what the built-in loop sends, the ids are those of `agents.prompting.context.Context`.
The tokens of images stand at their marks in a text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder, TurnPrompt
from starpo.ragen.agents.prompting.rendering import render
from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.core.errors import PolicyError, TemplateError
from starpo.ragen.methods.programs.chat import ChatMessage, Refusal

_MARKER = re.compile(r'zq(\d{5})qx|"?zv(\d{5})qx"?')
"""A text, or the arguments of a call: these are an object, so quotes that the template puts around them go."""
_USER = {"role": "user", "content": "probe"}
_CACHED = 1024
_ID = "call00000"


class Insert(NamedTuple):
    """A text to insert: its number, and whether the template writes it as a JSON string."""

    number: int
    is_quoted: bool


Text = tuple[str, tuple[Image, ...]]
"""A text to insert, and the images at its marks."""
Part = str | Insert
"""Text of the template, or a text to insert."""
Shape = tuple[tuple[str, bool, int, str], ...]
"""Of each message: role, whether it has a text to insert, number of calls, and its text if that is the template's."""


class Spelling:
    """The chat template of one policy. Used by one thread at a time.

    Attributes:
        takes_tools: Whether it shows the tools that are declared.
        call_form: Form in which it writes tool calls (`tool_calls`); 'hermes' if it writes none.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, contexts: ContextBuilder) -> None:
        self._tokenizer = tokenizer
        self._contexts = contexts
        self._ends = [end.text for end in contexts.pieces.ends]
        self._tag_ids = contexts.earlier.generation_ids[len(contexts.pieces.generation_ids) :]
        special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._special = {*special, *self._ends}
        self._parts = lru_cache(_CACHED)(self._render)
        self._template_ids = lru_cache(_CACHED)(self._encode_template)
        tool = {"type": "function", "function": {"name": "probe_tool", "description": "", "parameters": {}}}
        declared, _ = self._rendered([_USER], json.dumps([tool]))
        self.takes_tools = "probe_tool" in declared
        called, _ = self._rendered([_USER, *_marked((("assistant", False, 1, ""),))[0]], json.dumps([tool]))
        self._shows_calls = _MARKER.search(called) is not None
        self.call_form = "llama" if self._shows_calls and "<tool_call>" not in called else "hermes"

    def opening(self, messages: Sequence[ChatMessage], tools: str) -> TurnPrompt:
        """Return a whole conversation, up to the beginning of the response.

        Raises:
            Refusal: If the template does not take the messages, or the policy their images.
        """
        agent, shorten = self._contexts.agent, self._contexts.pieces.without_thought
        if agent.template_system_prompt == "empty" and messages[0].role != "system":
            messages = [ChatMessage("system", ""), *messages]
        if agent.earlier_thoughts == "dropped":
            messages = [
                replace(message, content=shorten(message.content)) if message.role == "assistant" else message
                for message in messages
            ]
        return self._ids(*_apart(messages, agent.system_prompt), tools, False)

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
        has_called = has_called and self._shows_calls
        shape, texts = _apart(messages)
        shape = (("assistant", not has_called, int(has_called), ""), *shape)
        return self._ids(shape, texts, tools, True, last_id)

    def _ids(
        self, shape: Shape, texts: Sequence[Text], tools: str, is_continuation: bool, last_id: int | None = None
    ) -> TurnPrompt:
        """Return the tokens of a shape with these texts, without its first one if a response ended with that."""
        if tools != "[]" and not self.takes_tools:
            raise Refusal(
                "the chat template of this policy has no place for tools: take a model whose template has one, or set "
                "agent.chat_template",
                code="tools_not_supported",
                param="tools",
            )
        if forged := [text for text in self._special if text in tools]:
            raise Refusal(f"the tools contain {forged[0]}, a special token of this policy", param="tools")
        parts = self._parts(shape, tools, is_continuation)
        if isinstance(parts, str):
            raise Refusal(f"the chat template of this policy {parts}", param="messages")
        ids: list[int] = []
        placed: list[PlacedImage] = []
        for part in parts:
            if isinstance(part, str):
                template_ids = self._template_ids(part)
                ids += template_ids[1:] if not ids and template_ids[0] == last_id else template_ids
            else:
                text, images = texts[part.number]
                text = json.dumps(text, ensure_ascii=False)[1:-1] if part.is_quoted else text
                placed += self._insert(ids, text, images)
        return TurnPrompt(ids + self._tag_ids, not is_continuation, tuple(placed))

    def _insert(self, ids: list[int], text: str, images: tuple[Image, ...]) -> list[PlacedImage]:
        """Append the ids of a text with images at its marks; return the images with their places."""
        first, *others = text.split(MARK) if images else [text]
        ids += self._contexts.encode_text(first)
        placed = []
        for image, after in zip(images, others, strict=True):
            try:
                placed.append(self._contexts.add_image(ids, image))
            except PolicyError as error:
                raise Refusal(str(error), param="messages") from None
            ids += self._contexts.encode_text(after)
        return placed

    def _render(self, shape: Shape, tools: str, is_continuation: bool) -> tuple[Part, ...] | str:
        """Return the parts of a shape, numbered from 0, or why the template does not take it."""
        messages, num_texts = _marked(shape)
        text, problem = self._rendered([_USER, *messages] if is_continuation else messages, tools)
        if problem:
            roles = ", ".join(dict.fromkeys(message["role"] for message in messages))
            return f"refuses messages of the roles {roles}: {problem}"[:500]
        num_before = 0
        if is_continuation:  # what follows the response, from the token that ends it
            num_before = 2 if shape[0][2] else 1
            spoken = [found.end() for found in _MARKER.finditer(text) if _number(found) < num_before]
            ends = (text.find(end, max(spoken, default=0)) for end in self._ends)
            place = min((place for place in ends if place >= 0), default=-1)
            if place < 0:
                return "does not end the assistant's message"
            text = text[place:]
        parts = tuple(_cut(text, num_before))
        if sorted(part.number for part in parts if isinstance(part, Insert)) != list(range(num_texts - num_before)):
            return "does not show every message's text once"
        return parts

    def _rendered(self, messages: Sequence[Mapping[str, Any]], tools: str) -> tuple[str, str]:
        """Return the text, or '' and the error."""
        declared = json.loads(tools) or None
        try:
            template = self._tokenizer.get_chat_template(self._contexts.agent.chat_template or None, declared)
            variables = {"tools": declared, "documents": None, **self._tokenizer.special_tokens_map}
            return render(template, [messages], variables)[0]
        except TemplateError as error:  # its limits
            return "", str(error)

    def _encode_template(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))


def _apart(messages: Sequence[ChatMessage], own_system_prompt: str = "") -> tuple[Shape, list[Text]]:
    """Take messages apart into their shape and the texts to insert, in the order of their markers."""
    shape: list[tuple[str, bool, int, str]] = []
    texts: list[Text] = []
    for message in messages:
        # The settings' system prompt is encoded together with the template, as in the built-in loop.
        is_own = message.role == "system" and message.content == own_system_prompt
        own, text = (message.content, "") if is_own else ("", message.content)
        shape.append((message.role, bool(text), len(message.calls), own))
        texts += [(text, message.images)] if text else []
        for call in message.calls:
            texts += [(call.name, ()), (call.arguments, ())]
    return tuple(shape), texts


def _marked(shape: Shape) -> tuple[list[dict[str, Any]], int]:
    """Return messages of this shape, with a numbered marker for every text, and the number of markers."""
    numbers = count()
    marked = []
    for role, has_text, num_calls, own in shape:
        message: dict[str, Any] = {"role": role, "content": f"zq{next(numbers):05d}qx" if has_text else own}
        functions = [
            {"name": f"zq{next(numbers):05d}qx", "arguments": f"zv{next(numbers):05d}qx"} for _ in range(num_calls)
        ]
        if functions:
            message["tool_calls"] = [{"type": "function", "id": _ID, "function": function} for function in functions]
        marked.append(message | ({"tool_call_id": _ID} if role == "tool" else {}))
    return marked, next(numbers)


def _cut(text: str, num_before: int) -> Iterator[Part]:
    """Yield the template's pieces and the texts to insert between them, numbered from `num_before` on."""
    place = 0
    for found in _MARKER.finditer(text):
        if found.start() > place:
            yield text[place : found.start()]
        around = text[found.start() - 1 : found.start()] + text[found.end() : found.end() + 1]
        yield Insert(_number(found) - num_before, is_quoted=found[1] is not None and around == '""')
        place = found.end()
    if place < len(text):
        yield text[place:]


def _number(marker: re.Match[str]) -> int:
    return int(marker[1] or marker[2])
