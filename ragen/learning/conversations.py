"""Conversations of others as examples: rendered and tokenised by the policy's own chat template, for imitation alone.

    rows of `turns` without tokens -> Conversation -> the template's renderings -> cut at each response -> Example

A response is what the template writes after its own generation prompt, tool calls, reasoning and end token included.
Where it is found follows from renderings, never from a search for special tokens: messages up to the response with the
generation prompt, and up to and including it. As long as each rendering continues the one before it, the responses of
a conversation share an example. Where the template rewrites what it showed before (most drop earlier reasoning), a new
example begins, so that every response is learned in the context in which the policy will give it.

Ids are those of `apply_chat_template`, except that a response never shares a token with the prompt before it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from starpo.ragen.agents.prompting.chat_template import template_source
from starpo.ragen.agents.prompting.rendering import render_all
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import TemplateError, first_line
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.examples import Example
from starpo.schemas.texts import messages_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]

_AT_ONCE = 200
_MAX_CHARS_A_TOKEN = 256
"""More than a token has; longer conversations are not even rendered."""
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_THINK_TAGS = ("<think>", "</think>")
_PROBE = {"role": "user", "content": "probe"}
_PROBE_TOOL = {"type": "function", "function": {"name": "probe_tool", "description": "", "parameters": {}}}
_SHOWN_REASONS = 5


@dataclass(frozen=True)
class Conversation:
    """Messages of one context, some of which are imitated.

    Attributes:
        name: Id of the trajectory.
        messages: As chat templates take them; `reasoning_content` apart, arguments of calls as they came.
        learned: Indices of the messages that are imitated, ascending; all of the role 'assistant'.
        tools: Declarations of tools.
    """

    name: str
    messages: list[Message]
    learned: list[int]
    tools: list[Any] = field(default_factory=list)


@dataclass
class LeftOut:
    """Conversations that cannot be imitated, by reason.

    Attributes:
        names: Reason -> names of the conversations.
    """

    names: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of conversations."""
        return sum(map(len, self.names.values()))

    def lines(self) -> Iterator[str]:
        """Yield a sentence for each reason, the most frequent first, with its first case."""
        ordered = sorted(self.names.items(), key=lambda item: -len(item[1]))
        for reason, names in ordered[:_SHOWN_REASONS]:
            yield f"{counted(len(names), 'conversation')} left out, such as {quoted(names[0])}: {reason}"
        if len(ordered) > _SHOWN_REASONS:
            yield f"and {counted(len(ordered) - _SHOWN_REASONS, 'more reason')}"


class _Unfit(ValueError):  # noqa: N818 (it is the conversation that does not fit)
    """Raised for a conversation that cannot be imitated; the message is the reason."""


def conversations_of(rows: Sequence[Mapping[str, Any]]) -> list[Conversation]:
    """Return the conversations of a trajectory, one for each of its contexts.

    Messages of the assistant that a context only repeats are not imitated, nor are empty responses.

    Args:
        rows: Its rows of `turns`, in order.
    """
    conversations: list[Conversation] = []
    for row in rows:
        if row["finish_reason"] == "none":
            continue
        prompt, response, tools = messages_of(row)
        if row["is_context_start"] or not conversations:
            conversations.append(Conversation(row["trajectory_id"], [], [], tools))
        messages, learned = conversations[-1].messages, conversations[-1].learned
        messages += prompt
        if any(response.get(name) for name in ("content", "reasoning_content", "tool_calls")):
            learned.append(len(messages))
        messages.append(response)
    return [conversation for conversation in conversations if conversation.learned]


@dataclass(frozen=True)
class _Draft:
    """Text of an example, and the spans of characters of its responses, end tokens included."""

    text: str
    spans: list[tuple[int, int]]


class ChatExamples:
    """Makes examples of conversations for one tokenizer and its chat template."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", agent: AgentConfig, max_tokens: int) -> None:
        """Wrap a tokenizer.

        Args:
            tokenizer: Has the template, unless the agent settings replace it.
            agent: `chat_template` and `template_system_prompt` count; prompts are those of the conversations.
            max_tokens: Conversations that are longer are left out.
        """
        self._tokenizer = tokenizer
        self._agent = agent
        self._max_tokens = max_tokens
        self._special_ids = {*tokenizer.added_tokens_decoder, *tokenizer.all_special_ids}

    def make(self, conversations: Sequence[Conversation]) -> tuple[list[list[Example]], LeftOut]:
        """Return the examples of each conversation, none of those that are left out.

        Raises:
            TemplateError: If there is no chat template, or it exceeds what a template may use.
        """
        examples: list[list[Example]] = []
        left_out = LeftOut()
        remaining = iter(conversations)
        while batch := list(islice(remaining, _AT_ONCE)):
            for conversation, drafts in zip(batch, self._drafts(batch), strict=True):
                try:
                    if isinstance(drafts, str):
                        raise _Unfit(drafts)
                    examples.append([self._example(draft) for draft in drafts])
                except _Unfit as reason:
                    examples.append([])
                    left_out.names.setdefault(str(reason), []).append(conversation.name)
        return examples, left_out

    def _drafts(self, conversations: Sequence[Conversation]) -> list[list[_Draft] | str]:
        """Return the drafts of each conversation, or why there are none."""
        drafts: list[list[_Draft] | str] = []
        for conversation in conversations:
            try:
                self._check(conversation)
            except _Unfit as reason:
                drafts.append(str(reason))
            else:
                drafts.append([])
        # Most templates take arguments as an object, a few as text.
        for as_text in (False, True):
            tried = [
                number
                for number, one in enumerate(conversations)
                if drafts[number] == [] or (as_text and _is_refused(drafts[number]) and _has_calls(one))
            ]
            prepared = [self._prepared(conversations[number], as_text) for number in tried]
            for number, messages, texts in zip(
                tried, prepared, self._rendered(conversations, tried, prepared), strict=True
            ):
                try:
                    drafts[number] = self._cut(conversations[number], messages, texts)
                except _Unfit as reason:
                    drafts[number] = str(reason)
        return drafts

    def _check(self, conversation: Conversation) -> None:
        """Check what needs no rendering.

        Raises:
            _Unfit: If it cannot be imitated.
        """
        messages = conversation.messages
        if any(one["role"] == two["role"] == "assistant" for one, two in pairwise(messages)):
            raise _Unfit("it has two messages of the assistant in a row")
        if conversation.tools and not self._takes_tools:
            raise _Unfit(
                "it declares tools, and the chat template of the policy has no place for them; set "
                "agent.chat_template = 'hermes'"
            )
        calls = [call for message in messages for call in message.get("tool_calls", ())]
        if not all(isinstance(call["function"]["arguments"], Mapping) for call in calls):
            raise _Unfit("the arguments of a tool call are no JSON object")
        if sum(len(message["content"]) for message in messages) > _MAX_CHARS_A_TOKEN * self._max_tokens:
            raise self._too_long
        text = json.dumps([messages, conversation.tools], ensure_ascii=False)
        if forged := self._special_texts.search(text):
            raise _Unfit(f"its text has {forged[0]}, a special token of the policy")

    def _prepared(self, conversation: Conversation, as_text: bool) -> list[Message]:
        """Return the messages as the template takes them."""
        messages = []
        if self._agent.template_system_prompt == "empty" and conversation.messages[0]["role"] != "system":
            messages.append({"role": "system", "content": ""})
        for message in conversation.messages:
            given = {name: value for name, value in message.items() if name != "reasoning_content"}
            if think := message.get("reasoning_content"):
                inline = f"<think>{think}</think>{message['content']}"
                given |= {self._reasoning_field: think} if self._reasoning_field else {"content": inline}
            if calls := message.get("tool_calls"):
                given["tool_calls"] = [_with_arguments(call, as_text) for call in calls]
            messages.append(given)
        return messages

    def _rendered(
        self, conversations: Sequence[Conversation], numbers: Sequence[int], prepared: Sequence[list[Message]]
    ) -> list[list[tuple[str, str]]]:
        """Render each conversation up to the beginning and to the end of every response: two (text, error) for each."""
        wanted: dict[str, list[dict[str, Any]]] = {}
        order = []
        for number, messages in zip(numbers, prepared, strict=True):
            conversation = conversations[number]
            shift = len(messages) - len(conversation.messages)
            template = self._template(conversation.tools)
            variables = wanted.setdefault(template, [])
            ends = [at + shift for at in conversation.learned]
            variables += [
                self._variables(messages[: at + after], conversation.tools, not after)
                for at in ends
                for after in (0, 1)
            ]
            order.append((template, 2 * len(ends)))
        texts = {template: render_all(template, renderings) for template, renderings in wanted.items()}
        return [list(islice(texts[template], count)) for template, count in order]

    def _cut(
        self, conversation: Conversation, messages: list[Message], texts: Sequence[tuple[str, str]]
    ) -> list[_Draft]:
        """Join the renderings of a conversation, each with its responses.

        Raises:
            _Unfit: If the template does not show it.
        """
        if problem := next((problem for _, problem in texts if problem), ""):
            raise _Unfit(f"{_REFUSED}: {problem.splitlines()[0][:200]}")
        shift = len(messages) - len(conversation.messages)
        drafts: list[_Draft] = []
        for at, (prompt, _), (whole, _) in zip(conversation.learned, texts[::2], texts[1::2], strict=True):
            if not whole.startswith(prompt):
                raise _Unfit(
                    "the chat template writes a response of the assistant in another form than after its own "
                    "generation prompt"
                )
            _check_shown(messages[: at + shift], messages[at + shift], whole, whole[len(prompt) :])
            span = len(prompt), len(whole.rstrip())  # white space after the end token is the template's
            if drafts and whole.startswith(drafts[-1].text):
                drafts[-1] = _Draft(whole, [*drafts[-1].spans, span])
            else:
                drafts.append(_Draft(whole, [span]))
        return drafts

    def _example(self, draft: _Draft) -> Example:
        """Tokenise a draft, up to its last response.

        Raises:
            _Unfit: If it is too long, or a response has no end token.
        """
        ids, ends = self._encode(draft)
        mask = np.zeros(len(ids), dtype=bool)
        last = 0
        for start, end in draft.spans:
            first = int(np.searchsorted(ends, start, side="right"))
            # An end token may take white space after it along.
            last = max(int(np.searchsorted(ends, end, side="right")), int(np.searchsorted(ends, end)) + 1)
            if last > len(ids) or ids[last - 1] not in self._special_ids:
                raise _Unfit("the chat template does not end a message of the assistant with a special token")
            mask[first:last] = True
        if last > self._max_tokens:
            raise self._too_long
        return Example(np.array(ids[:last], dtype=np.int64), mask[:last])

    def _encode(self, draft: _Draft) -> tuple[list[int], list[int]]:
        """Return the ids of a text, and for each the index of the character after it."""
        starts = [start for start, _ in draft.spans]
        if self._tokenizer.is_fast:
            ids, ends = self._encode_piece(draft.text)
            joined = sorted({*starts} - {0, *ends})
            if not joined:
                return ids, ends
        else:  # they do not say which characters a token has
            joined = sorted({place for span in draft.spans for place in span})
        ids, ends = [], []
        for start, stop in pairwise([0, *joined, len(draft.text)]):
            piece_ids, piece_ends = self._encode_piece(draft.text[start:stop])
            ids += piece_ids
            ends += [start + end for end in piece_ends]
        return ids, ends

    def _encode_piece(self, text: str) -> tuple[list[int], list[int]]:
        if not self._tokenizer.is_fast:
            ids = list(self._tokenizer.encode(text, add_special_tokens=False))
            return ids, [len(text)] * len(ids)
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return list(encoded["input_ids"]), [end for _, end in encoded["offset_mapping"]]

    @property
    def _too_long(self) -> _Unfit:
        return _Unfit(f"it has more than {self._max_tokens:,} tokens, which the policy may see at most")

    @cached_property
    def _special_texts(self) -> re.Pattern[str]:
        """Special tokens, and others that the template writes around messages: in a text they would forge a turn."""
        added = self._tokenizer.added_tokens_decoder.values()
        shown, _ = self._probe([_PROBE, {"role": "assistant", "content": "probe"}], [])
        texts = {token.content for token in added if token.special or token.content in shown}
        texts |= {*map(str, self._tokenizer.all_special_tokens)}
        return re.compile("|".join(map(re.escape, sorted(texts - {*_THINK_TAGS}))) or r"(?!)")

    @cached_property
    def _takes_tools(self) -> bool:
        """Whether the template shows the tools that are declared."""
        return "probe_tool" in self._probe([_PROBE], [_PROBE_TOOL])[0]

    @cached_property
    def _reasoning_field(self) -> str:
        """Field of a message whose text the template shows as reasoning; '' if it knows none."""
        reply = {"role": "assistant", "content": "probe"}
        probes = ((name, self._probe([_PROBE, {**reply, name: "reasoning probe"}], [])) for name in _REASONING_FIELDS)
        return next((name for name, (text, _) in probes if "reasoning probe" in text), "")

    def _probe(self, messages: list[Message], tools: list[Any]) -> tuple[str, str]:
        return next(render_all(self._template(tools), [self._variables(messages, tools, True)]))

    def _variables(self, messages: list[Message], tools: list[Any], is_prompt: bool) -> dict[str, Any]:
        given = {"messages": messages, "tools": tools or None, "documents": None, "add_generation_prompt": is_prompt}
        return self._tokenizer.special_tokens_map | given

    def _template(self, tools: list[Any]) -> str:
        try:
            return template_source(self._tokenizer, self._agent, tools or None)
        except ValueError as error:
            raise TemplateError(
                f"the tokenizer of '{self._tokenizer.name_or_path}' has no chat template to write conversations with: "
                f"{first_line(error)}. Give one: agent.chat_template = a .jinja file"
            ) from error


_REFUSED = "the chat template refuses it"


def _is_refused(draft: list[_Draft] | str) -> bool:
    return isinstance(draft, str) and draft.startswith(_REFUSED)


def _has_calls(conversation: Conversation) -> bool:
    return any(message.get("tool_calls") for message in conversation.messages)


def _with_arguments(call: Mapping[str, Any], as_text: bool) -> Message:
    """Return a tool call with its arguments as an object, or as text."""
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False) if as_text else function["arguments"]
    return {**call, "function": {**function, "arguments": arguments}}


def _check_shown(before: Sequence[Message], reply: Message, whole: str, response: str) -> None:
    """Check that the template shows what was said.

    Raises:
        _Unfit: If it leaves something out.
    """
    for message in before:
        if message["role"] != "assistant" and not _shows(whole, message["content"]):
            raise _Unfit(f"the chat template does not show its message of the role '{message['role']}'")
    if not _shows(response, reply["content"].rpartition(_THINK_TAGS[1])[2]):
        raise _Unfit("the chat template does not show the text of a response")
    if any(call["function"]["name"] not in response for call in reply.get("tool_calls", ())):
        raise _Unfit("the chat template does not write tool calls; set agent.chat_template")


def _shows(rendered: str, text: str) -> bool:
    """Whether a rendering has a text, as it is or as a JSON string, white space around it aside."""
    text = text.strip()
    return text in rendered or json.dumps(text, ensure_ascii=False)[1:-1] in rendered
