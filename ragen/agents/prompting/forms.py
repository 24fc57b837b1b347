"""The forms of reasoning: what has to stand inside `<think>`, told in the prompt and held to in what is read (VAGEN).

    free                     anything
    grounding                <observation>..</observation><reasoning>..</reasoning>
    worldmodeling            <reasoning>..</reasoning><prediction>..</prediction>
    grounding_worldmodeling  all three, in this order

The stored reasoning keeps the inner tags: whoever rewards a part reads it from there (`parts`).

    prompt -> `in_form` -> prompt that tells the form        response -> `read_response` -> ParsedResponse
    what a demonstrator thinks and where things are -> `write_reasoning` -> reasoning of the form
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starpo.ragen.agents.prompting.parser import ParsedResponse, parse
from starpo.ragen.agents.prompting.prompt import Prompt
from starpo.ragen.config.agent import FORMS, AgentConfig
from starpo.ragen.envs.grammar import Grammar
from starpo.ragen.envs.statements import Scene, write_statements

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
"""A form, not a statement: nothing is called THING, so that repeating it says nothing."""


def read_response(text: str, *, grammar: Grammar, agent: AgentConfig) -> ParsedResponse:
    """As `parser.parse`; and reasoning that is not of the agent's form is malformed, as is any other wrong tag.

    Args:
        text: The response without its end token; without the opening tag when the prompt holds it already.
        grammar: Of the environment's actions.
        agent: Which form is asked for.
    """
    parsed = parse(text, grammar=grammar, agent=agent)
    if agent.form == "free" or parsed.think is None or _parts(parsed.think, FORMS[agent.form]) is not None:
        return parsed
    return ParsedResponse()


def parts(think: str | None) -> dict[str, str]:
    """The parts of a stored reasoning by tag, character for character, whichever form it has.

    Returns:
        Such as `{"observation": ..., "reasoning": ...}`; empty where it is of no form, or there is none.
    """
    if think is None:
        return {}
    read = (_parts(think, tags) for tags in FORMS.values() if tags)
    return next((found for found in read if found is not None), {})


def write_reasoning(form: str, reasoning: str, before: Scene | None, after: Scene | None) -> str:
    """The reasoning that `parts` reads back: what a player thinks, in a form, with true statements in its other parts.

    Args:
        form: Of `FORMS`.
        reasoning: What the player thinks, without tags.
        before: What <observation> says: where things are before the turn. Read where the form has that part.
        after: What <prediction> says: where they are after its actions.
    """
    if form == "free":
        return reasoning
    scenes = {"observation": before, "prediction": after}
    texts = {name: write_statements(scene) for name, scene in scenes.items() if scene is not None}
    return "".join(f"<{name}>{(texts | {'reasoning': reasoning})[name]}</{name}>" for name in FORMS[form])


def in_form(prompt: Prompt, agent: AgentConfig) -> Prompt:
    """The prompt, which also tells the form of the reasoning; itself where that is free, or known from imitation."""
    return prompt if agent.form == "free" or agent.prompt == "state" else _FormedPrompt(prompt)


def _parts(think: str, tags: Sequence[str]) -> dict[str, str] | None:
    """White space may stand around the tags, and nothing else; no tag may be missing, repeated or out of order."""
    pieces = _TAG.split(think)
    texts = pieces[0::2]
    expected = [tag for name in tags for tag in (f"<{name}>", f"</{name}>")]
    if pieces[1::2] != expected or any(piece.strip() for piece in texts[0::2]):
        return None
    return dict(zip(tags, texts[1::2], strict=True))


class _FormedPrompt:
    """A prompt and, at the end of every turn, the form."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt

    def introduction(self, rules: str, grammar: Grammar, agent: AgentConfig) -> str:
        """That of the prompt."""
        return self._prompt.introduction(rules, grammar, agent)

    def turn_message(self, observation: str, *, agent: AgentConfig, **told: Any) -> str:
        """That of the prompt, and the form."""
        tags = "".join(f"<{name}>{_MEANINGS[name]}</{name}>" for name in FORMS[agent.form])
        message = self._prompt.turn_message(observation, agent=agent, **told)
        return f"{message}\nInside <think> always write: {tags} with nothing outside these tags.\n{_HOW_TO_SAY}"
