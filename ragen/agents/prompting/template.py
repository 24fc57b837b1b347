"""The append-only pieces of a tokenizer's chat template.

    opening  | user text | generation | response | continuation | user text | generation | response | ...

`opening` is what the template writes before the first user message (including a default system prompt and, if the
template supports tools, their declarations), `generation` closes a user message and opens the assistant's,
`continuation` closes the assistant's and opens the next user message. They are found once, by rendering probe
conversations, and tokenised once. From then on a context grows by appending ids, and sampled text is never tokenised
again.

Templates that show earlier responses without their reasoning have the same pieces, but their contexts do not grow: a
new one starts in every turn, with the earlier responses as the template shows them, tokenised again.

A system message is sent only if `agent.system_prompt` is set: instructions open the first user message, so that
templates without a system role work the same way.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from jinja2 import TemplateError as JinjaError
from transformers import PreTrainedTokenizerBase

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import TemplateError
from starpo.ragen.envs.grammar import Tool

_NUM_PROBE_TURNS = 4
_FIXED_DATE = date(2024, 7, 26)  # without a given date, templates print today's: prompts would change from day to day
_TODAY = re.compile(r"""strftime_now\(\s*(?P<quote>["'])(?P<form>[^"']*)(?P=quote)\s*\)""")
"""Templates' call for the current date, made even if a date is given; transformers does not allow replacing it."""


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
        stop_token_ids: Tokens that end a response: the first of `continuation_ids`, then the tokenizer's
            end-of-sequence token if that is a different one.
        opens_thought: Whether the template itself writes `<think>` before the response.
        strips_lines: Whether it strips leading newlines from a response whose reasoning it drops.
    """

    opening_ids: tuple[int, ...]
    generation_ids: tuple[int, ...]
    earlier_ids: tuple[int, ...]
    continuation_ids: tuple[int, ...]
    stop_token_ids: tuple[int, ...]
    opens_thought: bool = False
    strips_lines: bool = False

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
        TemplateError: If the tokenizer has no chat template, or one that does not accept plain user and assistant
            messages, changes earlier turns in other ways than the agent settings state, ends the assistant's message
            without an end token, or opens the reasoning although the agent does not expect it.
    """
    users = [f"state probe {n}" for n in range(_NUM_PROBE_TURNS)]
    drops = agent.earlier_thoughts == "dropped"
    between = "\n" if drops else ""
    answers = [f"{between}<answer>action probe {n}</answer>" for n in range(_NUM_PROBE_TURNS)]
    replies = [f"<think>reasoning probe {n}</think>{answer}" for n, answer in enumerate(answers)]
    renderings = [_render(tokenizer, agent, users[: n + 1], replies[:n], tools) for n in range(_NUM_PROBE_TURNS)]

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
    if stop is None or stop not in {*tokenizer.added_tokens_decoder, *tokenizer.all_special_ids}:
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
    stops = dict.fromkeys(i for i in (stop, tokenizer.eos_token_id) if i is not None)
    return ChatPieces(
        opening_ids=_tokenise(tokenizer, opening),
        generation_ids=_tokenise(tokenizer, generation),
        earlier_ids=_tokenise(tokenizer, earlier),
        continuation_ids=continuation_ids,
        stop_token_ids=tuple(stops),
        opens_thought=opens_thought,
        strips_lines=strips_lines,
    )


def _render(
    tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, users: list[str], replies: list[str], tools: Sequence[Tool]
) -> str:
    messages = [{"role": "system", "content": agent.system_prompt}] if agent.system_prompt else []
    messages.append({"role": "user", "content": users[0]})
    for reply, user in zip(replies, users[1:], strict=True):
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": user}]
    declared: list[Any] | None = [tool.declaration for tool in tools] or None
    try:
        template = tokenizer.get_chat_template(agent.chat_template or None, declared)
        text = tokenizer.apply_chat_template(
            messages,
            chat_template=_TODAY.sub(lambda asked: f"'{_FIXED_DATE.strftime(asked['form'])}'", template),
            tools=declared,
            tokenize=False,
            add_generation_prompt=True,
            date_string=_FIXED_DATE.strftime("%d %b %Y"),
        )
    except (JinjaError, ValueError, TypeError) as error:
        raise TemplateError(
            f"the chat template of '{_name(tokenizer)}' cannot render {len(messages)} plain user and assistant "
            f"messages: {error}. Use a tokenizer with a chat template, such as that of an instruction-tuned model"
        ) from error
    assert isinstance(text, str)
    missing = next((user for user in users if user not in text), None)
    if missing is not None:
        raise TemplateError(
            f"the chat template of '{_name(tokenizer)}' does not show the user message {missing!r}: it rendered "
            f"{text!r}; use a template that shows every user message as it is"
        )
    return text


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
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def _name(tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.name_or_path or type(tokenizer).__name__
