"""The append-only pieces of a tokenizer's chat template.

    opening  | user text | generation | response | continuation | user text | generation | response | ...

`opening` is what the template writes before the first user message (including a default system prompt and, if the
template supports tools, their declarations), `generation` closes a user message and opens the assistant's,
`continuation` closes the assistant's and opens the next user message. They are found once, by rendering probe
conversations, and tokenised once. From then on a context grows by appending ids, and sampled text is never tokenised
again.

Templates that show earlier responses without their reasoning have the same pieces, but their contexts do not grow: a
new one starts in every turn, with the earlier responses as the template shows them, tokenised again.

Each piece and each message is tokenised by itself, so that a message's text cannot reach into the template's tokens. A
message that begins or ends with white space may thus have other ids than in `apply_chat_template` of the whole
conversation, where a tokenizer may join it with the template's own line break.

A system message is sent only if `agent.system_prompt` is set: instructions open the first user message, so that
templates without a system role work the same way. A template that inserts a system prompt of its own gets an empty
system message instead where `agent.template_system_prompt = 'empty'`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.policy.folder import refusing
from starpo.ragen.agents.prompting.chat_template import template_source
from starpo.ragen.agents.prompting.rendering import Message, render
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import TemplateError
from starpo.ragen.envs.grammar import Tool

_NUM_PROBE_TURNS = 4
_SYSTEM_PROBE = "system probe"
_NO_TEMPLATE = (
    "the tokenizer of '{name}' has no chat template: it belongs to a base model. Use an instruction-tuned model, or "
    "give a template: agent.chat_template = 'hermes', another name of docs/prompts.md, or a .jinja file"
)


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
    """Token ids of the template's pieces.

    Attributes:
        opening_ids: Before the first user message.
        generation_ids: After a user message, before the response to be generated.
        earlier_ids: After a user message, before an earlier response; differs from `generation_ids` if the template
            opens the reasoning of the last response only.
        continuation_ids: After a response, before the next user message. Begins with the token that ends an
            assistant message.
        ends: Tokens that end a response: the first of `continuation_ids`, then the tokenizer's end-of-sequence token
            and those that the model's configuration declares, where they are different ones.
        inserted_system_prompt: The system prompt that the template inserts of itself; '' if none.
        opens_thought: Whether the template itself writes `<think>` before the response.
        strips_lines: Whether it strips leading newlines from a response whose reasoning it drops.
    """

    opening_ids: tuple[int, ...]
    generation_ids: tuple[int, ...]
    earlier_ids: tuple[int, ...]
    continuation_ids: tuple[int, ...]
    ends: tuple[EndToken, ...]
    inserted_system_prompt: str = ""
    opens_thought: bool = False
    strips_lines: bool = False

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids of `ends`."""
        return tuple(end.id for end in self.ends)

    def without_thought(self, text: str) -> str:
        """Return a response as a template that drops earlier reasoning shows it: the text after the last `</think>`."""
        left = text.rpartition("</think>")[2]
        return left.lstrip("\n") if self.strips_lines else left

    def after_response(self, response_ids: list[int]) -> list[int]:
        """Return the ids that must follow a response: `continuation_ids`, without the end token if it was sampled."""
        was_ended = bool(response_ids) and response_ids[-1] == self.continuation_ids[0]
        return list(self.continuation_ids[1:] if was_ended else self.continuation_ids)


def derive_pieces(tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, tools: Sequence[Tool] = ()) -> ChatPieces:
    """Find the pieces, and check over several turns that renderings consist of nothing else.

    White space that a template puts before the assistant's text is left for the model to sample and belongs to no
    piece.

    Args:
        tokenizer: Provides the template, unless the agent settings override it.
        agent: Determines which template, and whether it drops the reasoning of earlier turns.
        tools: Tools that the agent may call; a template that supports tools declares them in the opening.

    Raises:
        TemplateError: If the tokenizer has no chat template, or one that does not accept the messages of the agent
            settings, takes too much time or memory, changes earlier turns in other ways than the agent settings state,
            ends the assistant's message without an end token, or opens the reasoning although the agent does not expect
            it.
    """
    users = [f"state probe {n}" for n in range(_NUM_PROBE_TURNS)]
    drops = agent.earlier_thoughts == "dropped"
    between = "\n\n\n" if drops else ""  # more than an assistant's header may end with
    answers = [f"{between}<answer>action probe {n}</answer>" for n in range(_NUM_PROBE_TURNS)]
    replies = [f"<think>reasoning probe {n}</think>{answer}" for n, answer in enumerate(answers)]
    renderings, inserted = _renderings(tokenizer, agent, users, replies, tools)

    opening, _, generation = renderings[0].partition(users[0])
    begun = opening + users[0] if drops else renderings[0]
    found = renderings[1]
    _expect_start(tokenizer, begun, found)
    strips_lines = drops and answers[0] not in found
    shown = [answer.lstrip("\n") if strips_lines else answer for answer in answers] if drops else replies
    lead, _, after_reply = found.removeprefix(begun).partition(shown[0])
    earlier = lead if drops else generation + lead
    if drops and "reasoning probe" in lead:
        raise TemplateError(
            f"the chat template of '{_name(tokenizer)}' keeps the reasoning of earlier turns: set "
            "agent.earlier_thoughts = 'kept'"
        )
    _expect_start(tokenizer, begun + (lead if drops or lead.isspace() else "") + shown[0], found)
    continuation, _, _ = after_reply.partition(users[1])
    told = opening
    for turn in range(1, _NUM_PROBE_TURNS):
        told += users[turn - 1] + earlier + shown[turn - 1] + continuation
        expected = told + users[turn] + generation
        _expect_start(tokenizer, expected, renderings[turn])
        _expect_start(tokenizer, renderings[turn], expected)

    # A response ends with the end token itself, even if the template would put a space before it.
    continuation_ids = _tokenise(tokenizer, continuation.lstrip())
    stop = continuation_ids[0] if continuation_ids else None
    if stop is None or stop not in _special_ids(tokenizer):
        raise TemplateError(
            f"the chat template of '{_name(tokenizer)}' puts {continuation!r} after the assistant's text, which does "
            "not begin with a special token, so a model cannot show where its response ends; use a template that "
            "closes assistant messages with a special token"
        )
    opens_thought = generation.rstrip().endswith("<think>")
    if opens_thought and not (agent.should_think and agent.should_prefill_think):
        raise TemplateError(
            f"the chat template of '{_name(tokenizer)}' opens <think> before every response, which is then no part of "
            "it: set agent.should_prefill_think = true (and agent.should_think), or another agent.chat_template"
        )
    return ChatPieces(
        opening_ids=_tokenise(tokenizer, opening),
        generation_ids=_tokenise(tokenizer, generation),
        earlier_ids=_tokenise(tokenizer, earlier),
        continuation_ids=continuation_ids,
        ends=_ends(tokenizer, stop),
        inserted_system_prompt=inserted,
        opens_thought=opens_thought,
        strips_lines=strips_lines,
    )


def _renderings(
    tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, users: list[str], replies: list[str], tools: Sequence[Tool]
) -> tuple[list[str], str]:
    """Render the conversations of 1, 2, ... user messages; return them, and the system prompt that is inserted."""
    declared = [tool.declaration for tool in tools] or None
    try:
        template = template_source(tokenizer, agent, declared)
    except TemplateError:
        raise
    except ValueError as error:
        raise TemplateError(
            _NO_TEMPLATE.format(name=_name(tokenizer))
            if not tokenizer.chat_template
            else f"agent.chat_template: {error}"
        ) from error
    variables = {"tools": declared, "documents": None, **tokenizer.special_tokens_map}
    plain = [_messages(users[: n + 1], replies[:n]) for n in range(len(users))]
    system = {"role": "system", "content": agent.system_prompt}
    sent = [[system, *messages] for messages in plain] if agent.system_prompt else plain
    probe = [{"role": "system", "content": _SYSTEM_PROBE}, *plain[0]]
    *answers, probed = render(template, [*sent, probe], variables)
    inserted = "" if agent.system_prompt else _inserted(answers[0][0], probed[0], users[0])
    if inserted and agent.template_system_prompt == "empty":
        sent = [[system, *messages] for messages in plain]
        answers = render(template, sent, variables)
        inserted = ""
    for messages, (text, problem) in zip(sent, answers, strict=True):
        if problem:
            roles = ", ".join(dict.fromkeys(message["role"] for message in messages))
            raise TemplateError(
                f"the chat template of '{_name(tokenizer)}' cannot render {len(messages)} messages with the roles "
                f"{roles}: {problem}. Use an instruction-tuned model whose template takes these roles, or set "
                "agent.chat_template" + (" or leave agent.system_prompt empty" if agent.system_prompt else "")
            )
        missing = next(
            (message for message in messages if message["role"] == "user" and message["content"] not in text), None
        )
        if missing is not None:
            raise TemplateError(
                f"the chat template of '{_name(tokenizer)}' does not show the user message {missing['content']!r}: it "
                f"rendered {text[:500]!r}; use a template that shows every user message as it is"
            )
    return [text for text, _ in answers], inserted


def _messages(users: Sequence[str], replies: Sequence[str]) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": users[0]}]
    for reply, user in zip(replies, users[1:], strict=True):
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": user}]
    return messages


def _inserted(without: str, probed: str, user: str) -> str:
    """Return what stands in a rendering without a system message where the other has the probe's text."""
    before, is_shown, after = probed.partition(user)[0].partition(_SYSTEM_PROBE)
    opening = without.partition(user)[0]
    if not is_shown or not opening.startswith(before) or not opening.endswith(after):
        return ""
    return opening[len(before) : len(opening) - len(after)].strip()


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


def _expect_start(tokenizer: PreTrainedTokenizerBase, expected: str, found: str) -> None:
    if found.startswith(expected):
        return
    pairs = enumerate(zip(expected, found, strict=False))
    differs_at = next((i for i, (left, right) in pairs if left != right), len(found))
    around = slice(max(0, differs_at - 30), differs_at + 50)
    raise TemplateError(
        f"the chat template of '{_name(tokenizer)}' is not append-only: with a turn more, the text of a conversation "
        f"changes at character {differs_at}. Expected {expected[around]!r}, found {found[around]!r}. Give the "
        "tokenizer a template that leaves earlier turns, their <think> text included, as they were "
        "(agent.chat_template), or, if earlier reasoning is all that it drops, set agent.earlier_thoughts = 'dropped'"
    )


def _tokenise(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    with refusing(f"the tokenizer of '{_name(tokenizer)}' cannot encode its chat template"):
        return tuple(tokenizer.encode(text, add_special_tokens=False))


def _name(tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.name_or_path or type(tokenizer).__name__
