"""The append-only pieces of a tokenizer's chat template.

    opening  | user text | generation | response | continuation | user text | generation | response | ...

`opening` is what the template writes before the first user message (including a default system prompt and, if the
template supports tools, their declarations), `generation` closes a user message and opens the assistant's,
`continuation` closes the assistant's and opens the next user message. They are found once, by rendering probe
conversations. From then on a context grows by appending ids, and sampled text is never tokenised again.

Templates that show earlier responses without their reasoning, or with other white space around it, have the same
pieces. Where they show a response otherwise than it was sampled, the context does not grow: a new one starts, with the
earlier responses as the template shows them (`shown`), tokenised again. Some templates drop reasoning from the next
user message on, and keep it while only results of tools follow; so the pieces of a conversation with tools are found
with such results in place of user messages.

A system message is sent only if `agent.system_prompt` is set: instructions open the first user message, so that
templates without a system role work the same way. A template that inserts a system prompt of its own gets an empty
system message instead where `agent.template_system_prompt = 'empty'`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.policy.folder import refusing
from starpo.ragen.agents.prompting.encoding import ChatEncoder
from starpo.ragen.agents.prompting.probes import TemplateTexts, read_template, tokenizer_name
from starpo.ragen.agents.prompting.shown import ShownResponses
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import TemplateError
from starpo.ragen.envs.grammar import Tool


class EndToken(NamedTuple):
    """A token that ends a response.

    Attributes:
        id: Its id.
        text: Its text, such as `<|im_end|>`.
        source: What declares it: 'chat template', 'tokenizer', 'generation_config.json' or 'config.json'.
    """

    id: int
    text: str
    source: str


@dataclass(frozen=True)
class ChatPieces:
    """The template's pieces, as text and as token ids.

    Attributes:
        opening: Before the first user message.
        generation: After a user message, before the response to be generated.
        continuation: After a response, before the next user message. Begins with the token that ends an assistant
            message.
        shown: How the template shows earlier responses.
        margins: White space that the template puts before and after a response, in what the model is to sample.
        opened_thought: What of `generation` opens the reasoning, from `<think>` on; '' if the template does not.
        trims_users: Whether it strips white space from both ends of user messages.
        ends: Tokens that end a response: the first of `continuation`, then the tokenizer's end-of-sequence token and
            those that the model's configuration declares, where they are different ones.
        inserted_system_prompt: The system prompt that the template inserts of itself; '' if none.
        encoder: Encodes prompts.
        opening_ids: Ids of `opening`, alone.
        generation_ids: Ids of `generation`, alone.
        earlier_ids: Ids of what the template writes after a user message, before an earlier response, alone.
        continuation_ids: Ids of `continuation`, alone.
    """

    opening: str
    generation: str
    continuation: str
    shown: ShownResponses
    margins: tuple[str, str]
    opened_thought: str
    trims_users: bool
    ends: tuple[EndToken, ...]
    inserted_system_prompt: str
    encoder: ChatEncoder
    opening_ids: tuple[int, ...]
    generation_ids: tuple[int, ...]
    earlier_ids: tuple[int, ...]
    continuation_ids: tuple[int, ...]

    @property
    def opens_thought(self) -> bool:
        """Whether the template itself writes `<think>` before the response."""
        return bool(self.opened_thought)

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids of `ends`."""
        return tuple(end.id for end in self.ends)

    def after_response(self, response_ids: list[int]) -> list[int]:
        """Return the ids that must follow a response: `continuation_ids`, without the end token if it was sampled."""
        was_ended = bool(response_ids) and response_ids[-1] == self.continuation_ids[0]
        return list(self.continuation_ids[1:] if was_ended else self.continuation_ids)


def derive_pieces(
    tokenizer: PreTrainedTokenizerBase,
    agent: AgentConfig,
    tools: Sequence[Tool] = (),
    encoder: ChatEncoder | None = None,
) -> ChatPieces:
    """Find the pieces, and check over several turns that renderings consist of nothing else, in text and in ids.

    White space that a template puts before the assistant's text is left for the model to sample and belongs to no
    piece.

    Args:
        tokenizer: Provides the template, unless the agent settings override it.
        agent: Determines which template, and whether it drops the reasoning of earlier turns.
        tools: Tools that the agent may call; a template that supports tools declares them in the opening. All messages
            after the first are then their results.
        encoder: That of the template's pieces without tools, to be used for these too.

    Raises:
        TemplateError: If the tokenizer has no chat template, or one that does not accept the messages of the agent
            settings, takes too much time or memory, changes earlier turns in other ways than the agent settings state,
            ends the assistant's message without an end token, or opens the reasoning although the agent does not expect
            it; or if the tokenizer encodes a conversation otherwise than its parts.
    """
    name, texts = tokenizer_name(tokenizer), read_template(tokenizer, agent, tools)
    shown = texts.shown
    assert shown is not None
    if shown.drops_thoughts and agent.earlier_thoughts == "kept":
        raise TemplateError(
            f"the chat template of '{name}' drops the reasoning of earlier turns: {texts.both_texts}. Set "
            "agent.earlier_thoughts = 'dropped', or agent.chat_template to one that keeps it"
        )
    if not (shown.drops_thoughts or tools) and agent.earlier_thoughts == "dropped":
        raise TemplateError(
            f"the chat template of '{name}' keeps the reasoning of earlier turns: {texts.both_texts}. Set "
            "agent.earlier_thoughts = 'kept'"
        )
    if texts.opened_thought and not (agent.should_think and agent.should_prefill_think):
        raise TemplateError(
            f"the chat template of '{name}' opens <think> before every response, which is then no part of it: set "
            "agent.should_prefill_think = true (and agent.should_think), or another agent.chat_template"
        )
    # A response ends with the end token itself, even if the template would put a space before it.
    continuation = texts.continuation.lstrip()
    with refusing(f"the tokenizer of '{name}' cannot encode its chat template"):
        encoder = encoder or ChatEncoder(tokenizer, (texts.opening, texts.generation, shown.header, continuation))
        generation_ids, earlier_ids, continuation_ids = (
            tuple(encoder.encode(text)) for text in (texts.generation, shown.header, continuation)
        )
        opening_ids = tuple(encoder.encode(texts.opening, is_first=True))
    stop = continuation_ids[0] if continuation_ids else None
    if stop is None or stop not in _special_ids(tokenizer):
        raise TemplateError(
            f"the chat template of '{name}' puts {continuation!r} after the assistant's text, which does not begin "
            "with a special token, so a model cannot show where its response ends; use a template that closes "
            "assistant messages with a special token"
        )
    _check_ids(tokenizer, encoder, texts)
    return ChatPieces(
        opening=texts.opening,
        generation=texts.generation,
        continuation=continuation,
        shown=shown,
        margins=(texts.lead, texts.continuation.removesuffix(continuation)),
        opened_thought=texts.opened_thought,
        trims_users=texts.trims_users,
        ends=_ends(tokenizer, stop),
        inserted_system_prompt=texts.inserted_system_prompt,
        encoder=encoder,
        opening_ids=opening_ids,
        generation_ids=generation_ids,
        earlier_ids=earlier_ids,
        continuation_ids=continuation_ids,
    )


def _ends(tokenizer: PreTrainedTokenizerBase, template_end: int) -> tuple[EndToken, ...]:
    """Return all declared end tokens. An id that is an ordinary token of the vocabulary is none: configurations carry
    the defaults of their class, which mean another vocabulary."""
    declared: dict[int, str] = getattr(tokenizer, "declared_end_ids", {})
    sources = {template_end: "chat template"}
    if tokenizer.eos_token_id is not None:
        sources.setdefault(tokenizer.eos_token_id, "tokenizer")
    special = _special_ids(tokenizer)
    for number, source in declared.items():
        if number in special:
            sources.setdefault(number, source)
    return tuple(
        EndToken(number, str(tokenizer.convert_ids_to_tokens(number)), name) for number, name in sources.items()
    )


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    return {*tokenizer.added_tokens_decoder, *tokenizer.all_special_ids}


def _check_ids(tokenizer: PreTrainedTokenizerBase, encoder: ChatEncoder, texts: TemplateTexts) -> None:
    """Check that a conversation, written by its pieces, has the ids of its rendering.

    Raises:
        TemplateError: If not.
    """
    writer = encoder.writer(is_first=True)
    for text in texts.pieces:
        writer.template(text)
    by_pieces, whole = writer.finish(), tokenizer.encode(texts.rendering, add_special_tokens=False)
    if by_pieces == whole:
        return
    pairs = enumerate(zip(whole, by_pieces, strict=False))
    place = next((n for n, (left, right) in pairs if left != right), min(len(whole), len(by_pieces)))
    around = slice(max(0, place - 3), place + 5)
    expected, actual = (tokenizer.convert_ids_to_tokens(ids[around]) for ids in (whole, by_pieces))
    raise TemplateError(
        f"the tokenizer of '{tokenizer_name(tokenizer)}' encodes a conversation otherwise than piece by piece between "
        f"its special tokens: expected {expected}, found {actual}. Take another model, or set agent.chat_template"
    )
