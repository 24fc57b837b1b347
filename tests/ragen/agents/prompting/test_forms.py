"""Forms of reasoning: described in the prompt, enforced in responses, and read from stored reasoning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from starpo.ragen.agents.prompting.forms import in_form, parts, read_response, write_reasoning
from starpo.ragen.agents.prompting.full_prompt import FullPrompt
from starpo.ragen.agents.prompting.parser import ParsedResponse, parse
from starpo.ragen.agents.prompting.prompt import prompt_of
from starpo.ragen.config.agent import FORMS, AgentConfig
from starpo.ragen.envs.grammar import Names
from starpo.ragen.envs.statements import Scene

ACTIONS = Names(("Up", "Down"))
THINK = {
    "grounding": "<observation>o</observation><reasoning>r</reasoning>",
    "worldmodeling": "<reasoning>r</reasoning><prediction>p</prediction>",
    "grounding_worldmodeling": "<observation>o</observation><reasoning>r</reasoning><prediction>p</prediction>",
}
TOLD = {
    "turn": 0, "actions_left": 10, "reward": None, "had_invalid_action": False, "grammar": ACTIONS,
    "max_response_tokens": 400,
}  # fmt: skip
TAG_SOUP = st.lists(
    st.sampled_from(
        [f"<{slash}{name}>" for name in ("observation", "reasoning", "prediction", "think") for slash in ("", "/")]
        + [" ", "a", "\n"]
    ),
    max_size=8,
).map("".join)


def response(think: str) -> str:
    return f"<think>{think}</think><answer>Up</answer>"


@pytest.mark.parametrize("form", THINK)
def test_each_form_parses_only_itself(form):
    for other in THINK:
        parsed = read_response(response(THINK[form]), grammar=ACTIONS, agent=AgentConfig(form=other))
        expected = (THINK[form], "Up", ("Up",), ("Up",), True)
        assert parsed == (ParsedResponse(*expected) if other == form else ParsedResponse())


@pytest.mark.parametrize(
    "think",
    [
        "",
        "free",
        "<reasoning>r</reasoning>",
        "<reasoning>r</reasoning><observation>o</observation>",
        "<observation>o</observation><reasoning>r</reasoning><reasoning>r</reasoning>",
        "<observation>o<reasoning>r</reasoning></observation>",
        "<observation>o</observation>so<reasoning>r</reasoning>",
        "<observation>o</observation><reasoning>r",
        "<Observation>o</Observation><reasoning>r</reasoning>",
    ],
)
def test_any_other_reasoning_is_malformed(think):
    parsed = read_response(response(think), grammar=ACTIONS, agent=AgentConfig(form="grounding"))
    assert parsed == ParsedResponse()


def test_whitespace_around_inner_tags_allowed():
    think = "\n<observation> o </observation>\n<reasoning>r</reasoning> "
    assert read_response(response(think), grammar=ACTIONS, agent=AgentConfig(form="grounding")).think == think
    assert parts(think) == {"observation": " o ", "reasoning": "r"}


def test_formless_reasoning_has_no_parts():
    assert parts(None) == parts("t") == parts("<reasoning>r</reasoning>") == {}


def test_prefilled_tag_not_in_reasoning():
    agent = AgentConfig(form="grounding", should_prefill_think=True)
    assert read_response(response(THINK["grounding"]).removeprefix("<think>"), grammar=ACTIONS, agent=agent).format_ok


@given(text=TAG_SOUP.map(response) | st.text() | TAG_SOUP, form=st.sampled_from(sorted(FORMS)))
def test_a_form_only_ever_refuses(text, form):
    plain = parse(text, grammar=ACTIONS, agent=AgentConfig())
    formed = read_response(text, grammar=ACTIONS, agent=AgentConfig(form=form))
    assert formed in (plain, ParsedResponse())
    assert form != "free" or formed == plain
    if formed.think is not None and form != "free":
        assert tuple(parts(formed.think)) == FORMS[form]


@pytest.mark.parametrize("form", FORMS)
def test_written_form_is_read_back(form):
    before, after = Scene((1, 1), {"box": [(0, 1)]}), Scene((0, 1), {"box": [(0, 1)]})
    think = write_reasoning(form, "go up", before, after)
    assert read_response(response(think), grammar=ACTIONS, agent=AgentConfig(form=form)).think == think
    contents = {
        "observation": "the box is directly above the player",
        "reasoning": "go up",
        "prediction": "the box is in the same cell as the player",
    }
    assert parts(think) == {tag: contents[tag] for tag in FORMS[form]}
    assert form != "free" or think == "go up"


def test_learned_form_is_not_prompted():
    agent = AgentConfig(form="grounding", prompt="state")
    assert in_form(prompt_of(agent), agent).turn_message("P X O", agent=agent, **TOLD) == "P X O"


def test_prompt_states_form_at_end():
    agent = AgentConfig(form="grounding_worldmodeling")
    plain = FullPrompt().turn_message("P X O", agent=agent, **TOLD)
    assert in_form(prompt_of(agent), agent).turn_message("P X O", agent=agent, **TOLD) == (
        f"{plain}\n"
        "Inside <think> always write: <observation>where things are now</observation>"
        "<reasoning>what you will do, and why</reasoning>"
        "<prediction>where things will be after your actions</prediction> with nothing outside these tags.\n"
        "Say where a thing is as seen from the player, by row and by column, as in: the THING is above and to the left "
        "of the player; the THING is directly below the player."
    )


def test_prompt_unchanged_without_form():
    prompt = prompt_of(AgentConfig())
    assert in_form(prompt, AgentConfig()) is prompt


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"form": "grounding", "should_think": False}, "is a form of reasoning: set should_think = true"),
        ({"form": "symbolic"}, "Input should be 'free', 'grounding'"),
    ],
)
def test_unusable_form_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        AgentConfig(**settings)
