"""What a chat template writes around messages, found by rendering probe conversations.

    tokenizer, settings of the agent, tools -> `read_template` -> TemplateTexts

Responses are sent as they are or, to a template that reads reasoning only there, with their reasoning in the field
`reasoning_content`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.chat_template import template_source
from starpo.ragen.agents.prompting.rendering import Message, render
from starpo.ragen.agents.prompting.shown import (
    ANSWER,
    PROBES,
    RESPONSE,
    ShownResponses,
    find_shown,
    message_of,
    same_role,
)
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import TemplateError
from starpo.ragen.envs.grammar import Tool

_NUM_TURNS = 4
_SYSTEM_PROBE = "system probe"
_PADDED = " \n state probe \n "
_NO_TEMPLATE = (
    "the tokenizer of '{name}' has no chat template: it belongs to a base model. Use an instruction-tuned model, or "
    "give a template: agent.chat_template = 'hermes', another name of docs/prompts.md, or a .jinja file"
)


@dataclass(frozen=True)
class TemplateTexts:
    """What a template writes.

    Attributes:
        opening: Before the first user message.
        generation: After a user message, before the response to be generated.
        continuation: After a response, before the next user message.
        shown: How it shows earlier responses; None if in a form of its own.
        both_texts: What a response is sent as, and shown as.
        opened_thought: What of `generation` opens the reasoning, from `<think>` on; '' if the template does not.
        inserted_system_prompt: The system prompt that it inserts of itself; '' if none.
        trims_users: Whether it strips white space from both ends of user messages.
        pieces: Rendering of the longest probe conversation, by its pieces.
        rendering: The same as the template renders it.
    """

    opening: str
    generation: str
    continuation: str
    shown: ShownResponses | None
    both_texts: str
    opened_thought: str
    inserted_system_prompt: str
    trims_users: bool
    pieces: list[str]
    rendering: str

    @property
    def lead(self) -> str:
        """White space between `generation` and an earlier response."""
        assert self.shown is not None
        lead = self.shown.header.removeprefix(self.generation)
        return lead if lead.isspace() else ""


def read_template(tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, tools: Sequence[Tool] = ()) -> TemplateTexts:
    """Read what the template of a tokenizer writes around messages, and check it over several turns.

    Args:
        tokenizer: Provides the template, unless the agent settings override it.
        agent: Determines which template, and the system message.
        tools: Tools that are declared. All messages after the first are then their results.

    Raises:
        TemplateError: If the tokenizer has no chat template, or one that does not accept the messages of the agent
            settings, takes too much time or memory, shows earlier responses in a form of its own, or changes what it
            wrote with a turn more.
    """
    texts = _read(tokenizer, agent, tools, has_field=False)
    if texts.shown is None or not (texts.shown.is_verbatim or texts.shown.is_rewritten):
        other = _read(tokenizer, agent, tools, has_field=True)
        if other.shown is not None and (texts.shown is None or not other.shown.drops_thoughts):
            return other
    if texts.shown is None:
        raise TemplateError(
            f"the chat template of '{tokenizer_name(tokenizer)}' shows earlier responses in a form of its own: "
            f"{texts.both_texts}. It can be used neither with agent.earlier_thoughts = 'kept' nor with 'dropped': set "
            "agent.chat_template to one that leaves them as they were, drops their reasoning, or writes that between "
            "<think> and </think>"
        )
    return texts


def shown_before_results(
    tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, tool: Tool, has_field: bool
) -> ShownResponses | None:
    """Find how a template shows responses after which only messages of the role `tool` follow.

    Returns:
        None if the template does not take such messages, or shows the responses before them in a form of its own.
    """
    user, result = {"role": "user", "content": "state probe"}, {"role": "tool", "content": "result probe"}
    template = template_source(tokenizer, agent, [tool.declaration])
    variables = {"tools": [tool.declaration], "documents": None, **tokenizer.special_tokens_map}
    sent = [[user], *([user, message_of(text, has_field), result] for text in PROBES)]
    (first, _), *answers = render(template, sent, variables)
    begun = first.partition(user["content"])[0] + user["content"]
    middles = [text.removeprefix(begun).partition(result["content"])[0] for text, _ in answers]
    continuation = middles[PROBES.index(ANSWER)].partition(ANSWER)[2]
    return find_shown([middle.removesuffix(continuation) for middle in middles], has_field)


def trimmed_roles(tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, tool: Tool) -> set[str]:
    """Return the roles whose messages a template shows without the white space at both ends."""
    template = template_source(tokenizer, agent, [tool.declaration])
    variables = {"tools": [tool.declaration], "documents": None, **tokenizer.special_tokens_map}
    sent = [{"role": role, "content": f" \n {role} probe \n "} for role in ("user", "assistant", "tool", "user")]
    texts = [text for text, _ in render(template, [sent, sent[:2] + sent[3:]], variables)]
    text = texts[0] or texts[1]
    shown = {message["role"] for message in sent if f"{message['role']} probe" in text}
    kept = {
        message["role"]
        for message in sent
        if message["content"] in text or json.dumps(message["content"])[1:-1] in text
    }
    return shown - kept


def tokenizer_name(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the name of a tokenizer for messages."""
    return tokenizer.name_or_path or type(tokenizer).__name__


def _read(
    tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, tools: Sequence[Tool], *, has_field: bool
) -> TemplateTexts:
    probed, inserted = _renderings(tokenizer, agent, tools, has_field)
    opening, _, generation = probed.turns[0].partition(probed.users[0])
    begun, ending = opening + probed.users[0], probed.users[1] + generation
    _expect_start(tokenizer, begun, probed.turns[1])
    middles = [text.removeprefix(begun).removesuffix(ending) for text in probed.responses]
    continuation = middles[PROBES.index(ANSWER)].partition(ANSWER)[2]
    opened = generation[generation.rindex("<think>") :] if generation.rstrip().endswith("<think>") else ""
    shown = find_shown([middle.removesuffix(continuation) for middle in middles], has_field)
    pieces = [begun]
    if shown is not None and not same_role(shown.header, generation):
        shown = None
    if shown is not None:
        goes_on = shown.header.rstrip() + opened.rstrip() == generation.rstrip()
        shown = replace(shown, is_verbatim=shown.is_verbatim and goes_on)
        for turn in range(1, _NUM_TURNS):
            pieces += [piece.text for piece in shown.pieces(_reply(turn - 1))]
            pieces.append(continuation + probed.users[turn])
            text = "".join(pieces) + generation
            _expect_start(tokenizer, text, probed.turns[turn])
            _expect_start(tokenizer, probed.turns[turn], text)
    return TemplateTexts(
        opening=opening,
        generation=generation,
        continuation=continuation,
        shown=shown,
        both_texts=f"sent {RESPONSE!r} after {generation!r}, shown {middles[PROBES.index(RESPONSE)]!r}",
        opened_thought=opened,
        inserted_system_prompt=inserted,
        trims_users=_PADDED not in probed.padded and probed.padded == opening + _PADDED.strip() + generation,
        pieces=[*pieces, generation],
        rendering=probed.turns[-1],
    )


class _Probed(NamedTuple):
    """Renderings of probe conversations.

    Attributes:
        users: The user messages that were sent. [_NUM_TURNS]
        turns: Conversations of 1, 2, ... user messages. [_NUM_TURNS]
        responses: Two user messages, with each of `PROBES` between them; '' where the template fails. [num_probes]
        padded: One user message with white space at its ends; '' where the template fails.
    """

    users: list[str]
    turns: list[str]
    responses: list[str]
    padded: str


def _renderings(
    tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, tools: Sequence[Tool], has_field: bool
) -> tuple[_Probed, str]:
    """Render the probe conversations; return them, and the system prompt that is inserted."""
    name = tokenizer_name(tokenizer)
    declared = [tool.declaration for tool in tools] or None
    try:
        template = template_source(tokenizer, agent, declared)
    except TemplateError:
        raise
    except ValueError as error:
        raise TemplateError(
            _NO_TEMPLATE.format(name=name) if not tokenizer.chat_template else f"agent.chat_template: {error}"
        ) from error
    variables = {"tools": declared, "documents": None, **tokenizer.special_tokens_map}
    users = [f"state probe {n}" for n in range(_NUM_TURNS)]
    users[1:] = [f"<tool_response>\n{user}\n</tool_response>" for user in users[1:]] if tools else users[1:]
    replies = [message_of(_reply(n), has_field) for n in range(_NUM_TURNS)]
    plain = [_messages(users[: n + 1], replies[:n]) for n in range(len(users))]
    plain += [_messages(users[:2], [message_of(text, has_field)]) for text in PROBES]
    plain.append([{"role": "user", "content": _PADDED}])
    system = {"role": "system", "content": agent.system_prompt}
    sent = [[system, *messages] for messages in plain] if agent.system_prompt else plain
    probe = [{"role": "system", "content": _SYSTEM_PROBE}, *plain[0]]
    *answers, probed = render(template, [*sent, probe], variables)
    inserted = "" if agent.system_prompt else _inserted(answers[0][0], probed[0], users[0])
    if inserted and agent.template_system_prompt == "empty":
        sent = [[system, *messages] for messages in plain]
        answers = render(template, sent, variables)
        inserted = ""
    for messages, (text, problem) in zip(sent[:_NUM_TURNS], answers, strict=False):
        if problem:
            roles = ", ".join(dict.fromkeys(message["role"] for message in messages))
            raise TemplateError(
                f"the chat template of '{name}' cannot render {len(messages)} messages with the roles {roles}: "
                f"{problem}. Use an instruction-tuned model whose template takes these roles, or set "
                "agent.chat_template" + (" or leave agent.system_prompt empty" if agent.system_prompt else "")
            )
        missing = next(
            (message for message in messages if message["role"] == "user" and message["content"] not in text), None
        )
        if missing is not None:
            raise TemplateError(
                f"the chat template of '{name}' does not show the user message {missing['content']!r}: it "
                f"rendered {text[:500]!r}; use a template that shows every user message as it is"
            )
    texts = [text for text, _ in answers]
    return _Probed(users, texts[:_NUM_TURNS], texts[_NUM_TURNS:-1], texts[-1]), inserted


def _reply(turn: int) -> str:
    return RESPONSE.replace("probe", f"probe {turn}")


def _messages(users: Sequence[str], replies: Sequence[Message]) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": users[0]}]
    for reply, user in zip(replies, users[1:], strict=True):
        messages += [reply, {"role": "user", "content": user}]
    return messages


def _inserted(without: str, probed: str, user: str) -> str:
    """Return what stands in a rendering without a system message where the other has the probe's text."""
    before, is_shown, after = probed.partition(user)[0].partition(_SYSTEM_PROBE)
    opening = without.partition(user)[0]
    if not is_shown or not opening.startswith(before) or not opening.endswith(after):
        return ""
    return opening[len(before) : len(opening) - len(after)].strip()


def _expect_start(tokenizer: PreTrainedTokenizerBase, expected: str, text: str) -> None:
    if text.startswith(expected):
        return
    pairs = enumerate(zip(expected, text, strict=False))
    differs_at = next((i for i, (left, right) in pairs if left != right), len(text))
    around = slice(max(0, differs_at - 30), differs_at + 50)
    raise TemplateError(
        f"the chat template of '{tokenizer_name(tokenizer)}' is not append-only: with a turn more, the text of a "
        f"conversation changes at character {differs_at}. Expected {expected[around]!r}, found {text[around]!r}. Give "
        "the tokenizer a template that leaves earlier messages as they were (agent.chat_template)"
    )
