"""Parsing a response's text into reasoning and actions, and the inverse.

    response text, Grammar -> `parse` -> ParsedResponse -> (loop) environment steps
    demonstration -> `format_response` -> text to imitate

A response is untrusted text of any shape. Parsing never raises, never rewrites what is stored, and takes time linear in
the length of the text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs.grammar import Grammar, ToolCalls

_TAG = re.compile(r"(</?(?:think|answer)>)")
_TAG_WITH_CALLS = re.compile(r"(</?(?:think|answer|tool_call)>)")
_THINK_TAGS = ["<think>", "</think>"]


@dataclass(frozen=True)
class ParsedResponse:
    """A parsed response.

    Attributes:
        think: The reasoning, verbatim; None if the tags are malformed or there is no reasoning.
        answer: The text of the answer, verbatim; None if the tags are malformed.
        actions: Actions named in the answer, in order: known ones in the environment's spelling, others in the
            response's.
        known_prefix: `actions` before the first unknown one.
        format_ok: Whether the tags are well formed, and at least one known and no unknown action is named.
    """

    think: str | None = None
    answer: str | None = None
    actions: tuple[str, ...] = ()
    known_prefix: tuple[str, ...] = ()
    format_ok: bool = False


def parse(text: str, *, grammar: Grammar, agent: AgentConfig) -> ParsedResponse:
    """Parse a response of the form `<think>...</think><answer>a || b</answer>` (without thinking, the answer alone).

    Only white space is allowed outside the tags; no tag may be missing, repeated, nested or out of order. Tool calls
    replace the answer, each in tags of its own, at least one: `<tool_call>...</tool_call>`. An action is known if the
    grammar accepts it. A blank answer names no action; a blank piece between separators is an unknown action.

    Args:
        text: The response without its end token, and without the opening tag if the prompt already contains it.
        grammar: Grammar of the environment's actions.
        agent: Determines the required form.
    """
    pattern = _TAG_WITH_CALLS if isinstance(grammar, ToolCalls) else _TAG
    pieces = pattern.split(prefilled_tag(agent) + text)
    tags, texts = pieces[1::2], pieces[0::2]
    opening, closing = _answer_tags(grammar)
    lead = _THINK_TAGS if agent.should_think else []
    num_answers = max(1, (len(tags) - len(lead)) // 2) if isinstance(grammar, ToolCalls) else 1
    outside, inside = texts[0::2], texts[1::2]
    if tags != lead + [opening, closing] * num_answers or any(piece.strip() for piece in outside):
        return ParsedResponse()

    answers = inside[len(lead) // 2 :]
    named = [piece.strip() for answer in answers for piece in _pieces(answer, grammar)]
    known = [grammar.read(piece) for piece in named]
    num_known = known.index(None) if None in known else len(known)
    return ParsedResponse(
        think=inside[0] if agent.should_think else None,
        answer="".join(pieces[2 * len(lead) + 2 : -2]),
        actions=tuple(piece if name is None else name for name, piece in zip(known, named, strict=True)),
        known_prefix=tuple(name for name in known[:num_known] if name is not None),
        format_ok=0 < num_known == len(known),
    )


def format_response(think: str, actions: Sequence[str], agent: AgentConfig, grammar: Grammar) -> str:
    """Write the response that `parse` reads as this reasoning and these actions.

    Args:
        think: The reasoning, without tags; omitted if the agent does not think.
        actions: At least one action of the environment.
        agent: Determines the required form.
        grammar: Grammar of the environment's actions.

    Returns:
        The text of a response, without the end token, and without the opening tag if the prompt already contains it.
    """
    assert not _TAG_WITH_CALLS.search(think), f"the reasoning contains a tag: {think!r}"
    opening, closing = _answer_tags(grammar)
    between = f"{closing}{opening}" if isinstance(grammar, ToolCalls) else f" {grammar.separator} "
    answer = f"{opening}{between.join(actions)}{closing}"
    text = f"<think>{think}</think>{answer}" if agent.should_think else answer
    return text.removeprefix(prefilled_tag(agent))


def _answer_tags(grammar: Grammar) -> tuple[str, str]:
    return f"<{grammar.tag}>", f"</{grammar.tag}>"


def _pieces(answer: str, grammar: Grammar) -> list[str]:
    if not answer.strip():
        return []
    return [answer] if grammar.separator is None else answer.split(grammar.separator)


def prefilled_tag(agent: AgentConfig) -> str:
    """Return the opening tag that the prompt ends with and the response therefore omits; '' if there is none."""
    if not agent.should_prefill_think:
        return ""
    return "<think>" if agent.should_think else "<answer>"
