"""The append-only pieces of a tokenizer's chat template.

    opening  | user text | generation | response | continuation | user text | generation | response | ...

`opening` is what the template writes before the first user message (a default system prompt included, and the tools
that may be called, where the template knows tools), `generation`
closes a user message and opens the assistant's, `continuation` closes the assistant's and opens the next user message.
They are found once, by rendering probe conversations, and tokenised once. From then on a context grows by appending
ids: no text that was sampled is ever tokenised again.

No system message is sent: instructions open the first user message, so templates without a system role work alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import TemplateError as JinjaError
from transformers import PreTrainedTokenizerBase

from starpo.ragen.core.errors import TemplateError
from starpo.ragen.envs.grammar import Tool

_NUM_PROBE_TURNS = 4
_FIXED_DATE = "26 Jul 2024"  # Llama 3 templates print today's date if not given one: prompts would change overnight


@dataclass(frozen=True)
class ChatPieces:
    """Token ids of the template's pieces.

    Attributes:
        opening_ids: Before the first user message.
        generation_ids: After every user message, before the response.
        continuation_ids: After a response, before the next user message. Begins with the token that ends an
            assistant message.
        stop_token_ids: Tokens that end a response: the first of `continuation_ids`, then the tokenizer's
            end-of-sequence token where that is another.
    """

    opening_ids: tuple[int, ...]
    generation_ids: tuple[int, ...]
    continuation_ids: tuple[int, ...]
    stop_token_ids: tuple[int, ...]

    def after_response(self, response_ids: list[int]) -> list[int]:
        """The ids that must follow a response: `continuation_ids`, without the end token if it was sampled."""
        was_ended = bool(response_ids) and response_ids[-1] == self.continuation_ids[0]
        return list(self.continuation_ids[1:] if was_ended else self.continuation_ids)


def derive_pieces(tokenizer: PreTrainedTokenizerBase, tools: Sequence[Tool] = ()) -> ChatPieces:
    """Find the pieces, and check over several turns that renderings consist of nothing else.

    White space that a template puts before the assistant's text is the model's to sample, and belongs to no piece.

    Args:
        tokenizer: Whose template it is.
        tools: What the agent may call; a template that knows tools declares them in its own form, in the opening.

    Raises:
        TemplateError: If the tokenizer has no chat template, or one that does not take plain user and assistant
            messages, changes earlier turns when one is added (such as removing their reasoning), or ends the
            assistant's message without an end token.
    """
    users = [f"state probe {n}" for n in range(_NUM_PROBE_TURNS)]
    replies = [f"<think>reasoning probe {n}</think><answer>action probe {n}</answer>" for n in range(_NUM_PROBE_TURNS)]
    renderings = [_render(tokenizer, users[: n + 1], replies[:n], tools) for n in range(_NUM_PROBE_TURNS)]

    opening, _, generation = renderings[0].partition(users[0])
    found = renderings[1]
    _expect_start(tokenizer, renderings[0], found)
    lead, _, after_reply = found.removeprefix(renderings[0]).partition(replies[0])
    _expect_start(tokenizer, renderings[0] + (lead if lead.isspace() else "") + replies[0], found)
    continuation, _, _ = after_reply.partition(users[1])
    for turn in range(1, _NUM_PROBE_TURNS):
        appended = lead + replies[turn - 1] + continuation + users[turn] + generation
        expected = renderings[turn - 1] + appended
        _expect_start(tokenizer, expected, renderings[turn])
        _expect_start(tokenizer, renderings[turn], expected)

    # A response ends with the end token itself, also where the template would put a space before it.
    continuation_ids = _tokenise(tokenizer, continuation.lstrip())
    stop = continuation_ids[0] if continuation_ids else None
    if stop is None or stop not in {*tokenizer.added_tokens_decoder, *tokenizer.all_special_ids}:
        raise TemplateError(
            f"the chat template of '{_name(tokenizer)}' puts {continuation!r} after the assistant's text, which does "
            "not begin with a special token, so a model cannot show where its response ends; use a template that "
            "closes assistant messages with a special token"
        )
    stops = dict.fromkeys(i for i in (stop, tokenizer.eos_token_id) if i is not None)
    return ChatPieces(
        opening_ids=_tokenise(tokenizer, opening),
        generation_ids=_tokenise(tokenizer, generation),
        continuation_ids=continuation_ids,
        stop_token_ids=tuple(stops),
    )


def _render(tokenizer: PreTrainedTokenizerBase, users: list[str], replies: list[str], tools: Sequence[Tool]) -> str:
    messages = [{"role": "user", "content": users[0]}]
    for reply, user in zip(replies, users[1:], strict=True):
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": user}]
    try:
        text = tokenizer.apply_chat_template(
            messages,
            tools=[tool.declaration for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=True,
            date_string=_FIXED_DATE,
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
        "tokenizer a template that leaves earlier turns, their <think> text included, as they were"
    )


def _tokenise(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def _name(tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.name_or_path or type(tokenizer).__name__
