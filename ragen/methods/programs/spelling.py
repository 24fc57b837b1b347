"""Messages as token ids, by the model's own chat template and with text that cannot forge a turn.

    messages, tools -> their shape -> the template, rendered with a marker for every text -> cut at the markers
        -> ids of the template's pieces with its special tokens, and of the texts without (`ChatEncoder`)

A template is rendered once for each shape (roles, which messages have text, numbers of tool calls), so that a call of a
program costs no rendering. For what the built-in loop sends, the ids are those of `agents.prompting.context.Context`.
The tokens of images stand at their marks in a text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder, TurnPrompt
from starpo.ragen.agents.prompting.encoding import PromptWriter
from starpo.ragen.agents.prompting.probes import shown_before_results, trimmed_roles
from starpo.ragen.agents.prompting.rendering import render
from starpo.ragen.agents.prompting.shown import message_of
from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.core.errors import PolicyError, TemplateError
from starpo.ragen.envs.grammar import Tool
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
"""Of each message: role, whether it has a text to insert, number of calls, and its text if that is the template's, or
_THOUGHT or _EMPTY_THOUGHT if it has reasoning apart from its text."""
_THOUGHT, _EMPTY_THOUGHT = "<think>\0</think>", "<think></think>"
_PROBE_TOOL = Tool("probe_tool", "", {})


class Spelling:
    """The chat template of one policy. Used by one thread at a time.

    Attributes:
        is_verbatim: Whether it shows responses as they were sampled, whatever follows.
        takes_tools: Whether it shows the tools that are declared.
        call_form: Form in which it writes tool calls (`tool_calls`); 'hermes' if it writes none.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, contexts: ContextBuilder) -> None:
        self._tokenizer = tokenizer
        self._contexts = contexts
        self.is_verbatim = contexts.pieces.shown.is_verbatim
        self._ends = [end.text for end in contexts.pieces.ends]
        self._tag = contexts.earlier.generation.removeprefix(contexts.pieces.generation)
        # What the template makes of responses before the last message of a user, and after it.
        shown = contexts.pieces.shown
        in_loop = shown_before_results(tokenizer, contexts.agent, _PROBE_TOOL, shown.has_field)
        self._shown = shown, in_loop or shown
        self._trimmed = trimmed_roles(tokenizer, contexts.agent, _PROBE_TOOL)
        special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._special = {*special, *self._ends}
        self._parts = lru_cache(_CACHED)(self._render)
        tool = _PROBE_TOOL.declaration
        declared, _ = self._rendered([_USER], json.dumps([tool]))
        self.takes_tools = "probe_tool" in declared
        called, _ = self._rendered([_USER, *_marked((("assistant", False, 1, ""),), False)[0]], json.dumps([tool]))
        self._shows_calls = _MARKER.search(called) is not None
        self.call_form = "llama" if self._shows_calls and "<tool_call>" not in called else "hermes"

    def opening(self, messages: Sequence[ChatMessage], tools: str) -> TurnPrompt:
        """Return a whole conversation, up to the beginning of the response.

        Raises:
            Refusal: If the template does not take the messages, or the policy their images.
        """
        agent = self._contexts.agent
        if agent.template_system_prompt == "empty" and messages[0].role != "system":
            messages = [ChatMessage("system", ""), *messages]
        return self._ids(*self._apart(messages, agent.system_prompt), tools, False)

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
        has_called = has_called and self._shows_calls
        shape, texts = self._apart(messages)
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
        writer = self._contexts.encoder.writer(last_id, is_first=not is_continuation, should_cache=False)
        placed: list[PlacedImage] = []
        for part in parts:
            if isinstance(part, str):
                writer.template(part)
            else:
                text, images = texts[part.number]
                text = json.dumps(text, ensure_ascii=False)[1:-1] if part.is_quoted else text
                placed += self._insert(writer, text, images)
        writer.template(self._tag)
        return TurnPrompt(writer.finish(), not is_continuation, tuple(placed))

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

    def _render(self, shape: Shape, tools: str, is_continuation: bool) -> tuple[Part, ...] | str:
        """Return the parts of a shape, numbered from 0, or why the template does not take it."""
        messages, num_texts, thoughts = _marked(shape, self._shown[0].has_field)
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
        numbers = sorted(part.number for part in parts if isinstance(part, Insert))
        dropped = thoughts.difference(numbers)
        if numbers != [number for number in range(num_texts - num_before) if number not in dropped]:
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

    def _apart(self, messages: Sequence[ChatMessage], own_system_prompt: str = "") -> tuple[Shape, list[Text]]:
        """Take messages apart into their shape and the texts to insert, in the order of their markers."""
        shape: list[tuple[str, bool, int, str]] = []
        texts: list[Text] = []
        last_user = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
        for place, message in enumerate(messages):
            # The settings' system prompt is encoded together with the template, as in the built-in loop.
            is_own = message.role == "system" and message.content == own_system_prompt
            own, text = (message.content, "") if is_own else ("", message.content)
            shown = self._shown[place > last_user]
            if message.role == "assistant" and shown.is_rewritten:
                thought, text = shown.split(text)
                texts += [(thought, ())] if thought else []
                own = "" if thought is None else _THOUGHT if thought else _EMPTY_THOUGHT
            elif message.role in self._trimmed:
                text = text.strip()
            shape.append((message.role, bool(text), len(message.calls), own))
            texts += [(text, message.images)] if text else []
            for call in message.calls:
                texts += [(call.name, ()), (call.arguments, ())]
        return tuple(shape), texts


def _marked(shape: Shape, has_field: bool) -> tuple[list[dict[str, Any]], int, set[int]]:
    """Return messages of this shape, with a numbered marker for every text, the number of markers, and those of
    reasoning, which the template may drop. With `has_field` it has a field of its own."""
    numbers = count()
    thoughts: set[int] = set()
    marked = []
    for role, has_text, num_calls, own in shape:
        thought = own.startswith("<think>") and role == "assistant"
        if thought and "\0" in own:
            thoughts.add(number := next(numbers))
            own = own.replace("\0", f"zq{number:05d}qx")
        text = f"zq{next(numbers):05d}qx" if has_text else ""
        message: dict[str, Any] = {
            "role": role,
            **(message_of(own + text, has_field) if thought else {"content": text or own}),
        }
        functions = [
            {"name": f"zq{next(numbers):05d}qx", "arguments": f"zv{next(numbers):05d}qx"} for _ in range(num_calls)
        ]
        if functions:
            message["tool_calls"] = [{"type": "function", "id": _ID, "function": function} for function in functions]
        marked.append(message | ({"tool_call_id": _ID} if role == "tool" else {}))
    return marked, next(numbers), thoughts


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
