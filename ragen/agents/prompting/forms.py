"""The forms of reasoning: required structure inside `<think>`, described in the prompt and enforced in parsing (VAGEN).

    free                     anything
    grounding                <observation>..</observation><reasoning>..</reasoning>
    worldmodeling            <reasoning>..</reasoning><prediction>..</prediction>
    grounding_worldmodeling  all three, in this order

The stored reasoning keeps the inner tags: rewards for a part read it from there (`parts`).

    prompt -> `in_form` -> prompt that describes the form        response -> `read_response` -> ParsedResponse
    a demonstrator's reasoning and the positions of objects -> `write_reasoning` -> reasoning in the form
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starpo.ragen.agents.prompting.parser import ParsedResponse, parse
from starpo.ragen.agents.prompting.prompt import Prompt
from starpo.ragen.config.agent import FORMS, AgentConfig
from starpo.ragen.envs.grammar import Grammar

if TYPE_CHECKING:
    from starpo.ragen.envs.statements import Scene

_MEANINGS: Mapping[str, str] = {
    "observation": "where things are now",
    "reasoning": "what you will do, and why",
    "prediction": "where things will be after your actions",
}
_TAG = re.compile(r"(</?(?:observation|reasoning|prediction)>)")
_HOW_TO_SAY = (
    "Say where a thing is as seen from the player, by row and by column, as in: the THING is above and to the left of "
    "the player; the THING is directly below the player."
)
"""A pattern, not a statement: no object is called THING, so repeating the sentence states nothing."""


def read_response(text: str, *, grammar: Grammar, agent: AgentConfig) -> ParsedResponse:
    """Parse a response as `parser.parse` does, treating reasoning that violates the agent's form as malformed.

    Args:
        text: The response without its end token, and without the opening tag if the prompt already contains it.
        grammar: Grammar of the environment's actions.
        agent: Determines the required form.
    """
    parsed = parse(text, grammar=grammar, agent=agent)
    if agent.form == "free" or parsed.think is None or _parts(parsed.think, FORMS[agent.form]) is not None:
        return parsed
    return ParsedResponse()


def parts(think: str | None) -> dict[str, str]:
    """Split stored reasoning into its parts by tag, verbatim, whichever form it has.

    Returns:
        For example `{"observation": ..., "reasoning": ...}`; empty without reasoning, or if it matches no form.
    """
    if think is None:
        return {}
    read = (_parts(think, tags) for tags in FORMS.values() if tags)
    return next((by_tag for by_tag in read if by_tag is not None), {})


def write_reasoning(form: str, reasoning: str, before: "Scene | None", after: "Scene | None") -> str:
    """Write reasoning in a form, with true statements in its other parts; the inverse of `parts`.

    Args:
        form: One of `FORMS`.
        reasoning: The player's reasoning, without tags.
        before: Object positions before the turn, for <observation>; needed if the form has that part.
        after: Object positions after its actions, for <prediction>; needed if the form has that part.
    """
    if form == "free":
        return reasoning
    from starpo.ragen.envs.statements import write_statements

    scenes = {"observation": before, "prediction": after}
    texts = {name: write_statements(scene) for name, scene in scenes.items() if scene is not None}
    return "".join(f"<{name}>{(texts | {'reasoning': reasoning})[name]}</{name}>" for name in FORMS[form])


def in_form(prompt: Prompt, agent: AgentConfig) -> Prompt:
    """Wrap a prompt so that it also describes the form of reasoning; unchanged for form 'free' or prompt 'state'."""
    return prompt if agent.form == "free" or agent.prompt == "state" else _FormedPrompt(prompt)


def _parts(think: str, tags: Sequence[str]) -> dict[str, str] | None:
    """Split reasoning by tag; None if a tag is missing, repeated or out of order, or if there is text outside them."""
    pieces = _TAG.split(think)
    texts = pieces[0::2]
    expected = [tag for name in tags for tag in (f"<{name}>", f"</{name}>")]
    if pieces[1::2] != expected or any(piece.strip() for piece in texts[0::2]):
        return None
    return dict(zip(tags, texts[1::2], strict=True))


class _FormedPrompt:
    """A prompt that describes the form at the end of every turn."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt

    def introduction(self, rules: str, grammar: Grammar, agent: AgentConfig) -> str:
        """Return the wrapped prompt's introduction."""
        return self._prompt.introduction(rules, grammar, agent)

    def turn_message(self, observation: str, *, agent: AgentConfig, **variables: Any) -> str:
        """Return the wrapped prompt's message, followed by the form."""
        tags = "".join(f"<{name}>{_MEANINGS[name]}</{name}>" for name in FORMS[agent.form])
        message = self._prompt.turn_message(observation, agent=agent, **variables)
        return f"{message}\nInside <think> always write: {tags} with nothing outside these tags.\n{_HOW_TO_SAY}"
