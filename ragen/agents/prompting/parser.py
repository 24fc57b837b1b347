"""From a response's text to its reasoning and actions, and back.

    response text -> `parse` -> ParsedResponse -> (loop) environment steps
    demonstration -> `format_response` -> text to imitate

A response is untrusted text of any shape. Parsing never raises, never rewrites what is stored, and takes time linear
in the text's length.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starpo.ragen.config.agent import ACTION_SEPARATOR, AgentConfig

_TAG = re.compile(r"(</?(?:think|answer)>)")
_THINK_TAGS = ["<think>", "</think>", "<answer>", "</answer>"]
_ANSWER_TAGS = ["<answer>", "</answer>"]


@dataclass(frozen=True)
class ParsedResponse:
    """What a response says.

    Attributes:
        think: The reasoning, character for character. None: the tags are not well formed, or there is no reasoning.
        answer: The text of the answer, character for character. None: the tags are not well formed.
        actions: Actions named in the answer, in order: the environment's spelling of those it knows, the response's
            of the others.
        known_prefix: `actions` before the first unknown one.
        format_ok: Are the tags well formed, and is at least one known action named, and no unknown one?
    """

    think: str | None = None
    answer: str | None = None
    actions: tuple[str, ...] = ()
    known_prefix: tuple[str, ...] = ()
    format_ok: bool = False


def parse(text: str, *, actions: Sequence[str], agent: AgentConfig) -> ParsedResponse:
    """Read a response of the form `<think>...</think><answer>a || b</answer>` (without thinking, the answer alone).

    White space may stand around the tags, and nothing else; no tag may be missing, repeated, nested or out of order.
    An action is known if it equals an environment's action but for case and surrounding white space. A blank answer
    names no action; a blank piece between separators is an unknown action.

    Args:
        text: The response without its end token; without the opening tag when the prompt holds it already.
        actions: Names of the environment's actions.
        agent: Which form is asked for.
    """
    pieces = _TAG.split(prefilled_tag(agent) + text)
    tags, texts = pieces[1::2], pieces[0::2]
    expected = _THINK_TAGS if agent.should_think else _ANSWER_TAGS
    outside, inside = texts[0::2], texts[1::2]
    if tags != expected or any(piece.strip() for piece in outside):
        return ParsedResponse()

    names = {name.casefold(): name for name in actions}
    answer = inside[-1]
    named = [piece.strip() for piece in answer.split(ACTION_SEPARATOR)] if answer.strip() else []
    known = [names.get(piece.casefold()) for piece in named]
    num_known = known.index(None) if None in known else len(known)
    return ParsedResponse(
        think=inside[0] if agent.should_think else None,
        answer=answer,
        actions=tuple(name or piece for name, piece in zip(known, named, strict=True)),
        known_prefix=tuple(name for name in known[:num_known] if name is not None),
        format_ok=0 < num_known == len(known),
    )


def format_response(think: str, actions: Sequence[str], agent: AgentConfig) -> str:
    """Write the response that `parse` reads as this reasoning and these actions.

    Args:
        think: The reasoning, without tags. Left out where the agent does not think.
        actions: At least one of the environment's actions.
        agent: Which form is asked for.

    Returns:
        The text of a response, without the end token, and without the opening tag when the prompt holds it already.
    """
    assert not _TAG.search(think), f"the reasoning contains a tag: {think!r}"
    answer = f"<answer>{f' {ACTION_SEPARATOR} '.join(actions)}</answer>"
    text = f"<think>{think}</think>{answer}" if agent.should_think else answer
    return text.removeprefix(prefilled_tag(agent))


def prefilled_tag(agent: AgentConfig) -> str:
    """The tag with which the prompt ends, and that is therefore no part of the response; '' if there is none."""
    if not agent.should_prefill_think:
        return ""
    return _THINK_TAGS[0] if agent.should_think else _ANSWER_TAGS[0]
