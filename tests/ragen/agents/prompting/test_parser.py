"""Parsing of responses: strict about form, lenient about case and white space, never raises, takes linear time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.agents.prompting.parser import ParsedResponse, format_response, parse, prefilled_tag
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs.grammar import FreeText, Names, Pattern, Tool, ToolCalls

ACTIONS = Names(("Up", "Down", "Left", "Turn Right"))
THINK = AgentConfig()
NO_THINK = AgentConfig(should_think=False)
PREFILLED = AgentConfig(should_prefill_think=True)
PREFILLED_NO_THINK = AgentConfig(should_think=False, should_prefill_think=True)
MALFORMED = ParsedResponse(None, None, (), (), False)
AGENTS = st.sampled_from([THINK, NO_THINK, PREFILLED, PREFILLED_NO_THINK])

# Text built from the pieces that the parser looks for finds more errors than arbitrary text.
TAG_SOUP = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<answer>", "</answer>", "||", "Up", "up ", "Jump", " ", "\n", "<", "/think>", "|", "é"]
    ),
    max_size=12,
).map("".join)


def test_think_and_answer():
    parsed = parse("<think>box is above</think><answer>Up || Left</answer>", grammar=ACTIONS, agent=THINK)
    assert parsed == ParsedResponse("box is above", "Up || Left", ("Up", "Left"), ("Up", "Left"), True)


def test_whitespace_around_tags_allowed():
    parsed = parse("\n <think> t\nt </think>\n\n<answer>\nup\n</answer> \n", grammar=ACTIONS, agent=THINK)
    assert parsed == ParsedResponse(" t\nt ", "\nup\n", ("Up",), ("Up",), True)


@pytest.mark.parametrize("spelled", ["turn right", "TURN RIGHT", "  Turn Right\t"])
def test_actions_match_ignoring_case_and_space(spelled):
    parsed = parse(f"<think></think><answer>{spelled}</answer>", grammar=ACTIONS, agent=THINK)
    assert parsed.known_prefix == ("Turn Right",)
    assert parsed.format_ok


@pytest.mark.parametrize(
    ("answer", "named", "known_prefix"),
    [
        ("Up || Jump || Down", ("Up", "Jump", "Down"), ("Up",)),
        ("Jump || Up", ("Jump", "Up"), ()),
        ("up ||", ("Up", ""), ("Up",)),
        ("Up | Down", ("Up | Down",), ()),
        ("Up, Down", ("Up, Down",), ()),
        ("TurnRight", ("TurnRight",), ()),
    ],
)
def test_unknown_action_malformed_keeps_known_prefix(answer, named, known_prefix):
    parsed = parse(f"<think>t</think><answer>{answer}</answer>", grammar=ACTIONS, agent=THINK)
    assert parsed == ParsedResponse("t", answer, named, known_prefix, False)


@pytest.mark.parametrize("blank", ["", "  \n"])
def test_blank_answer_names_no_action(blank):
    parsed = parse(f"<think>t</think><answer>{blank}</answer>", grammar=ACTIONS, agent=THINK)
    assert parsed == ParsedResponse("t", blank, (), (), False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Up",
        "<answer>Up</answer>",
        "<think>t</think>",
        "<think>t</think><answer>Up",
        "<think>t<answer>Up</answer>",
        "t</think><answer>Up</answer>",
        "<answer>Up</answer><think>t</think>",
        "<think>t</think><answer>Up</answer>.",
        "Sure! <think>t</think><answer>Up</answer>",
        "<think>t</think>so<answer>Up</answer>",
        "<think><think>t</think></think><answer>Up</answer>",
        "<think>t</think><think>u</think><answer>Up</answer>",
        "<think>t</think><answer>Up</answer><answer>Up</answer>",
        "<think>t</think><answer><answer>Up</answer></answer>",
        "<think>maybe <answer>Down</answer></think><answer>Up</answer>",
        "<Think>t</Think><answer>Up</answer>",
        "< think>t</think><answer>Up</answer>",
        "<think>t</think><answer>Up</answer><|im_end|>",
    ],
)
def test_malformed_tags_tell_nothing_apart(text):
    assert parse(text, grammar=ACTIONS, agent=THINK) == MALFORMED


def test_unrequested_thinking_is_malformed():
    assert parse("<think>t</think><answer>Up</answer>", grammar=ACTIONS, agent=NO_THINK) == MALFORMED


def test_prefilled_tag_belongs_to_prompt():
    assert parse("t</think><answer>Up</answer>", grammar=ACTIONS, agent=PREFILLED).think == "t"
    assert parse("Up</answer>", grammar=ACTIONS, agent=PREFILLED_NO_THINK).format_ok
    assert parse("<think>t</think><answer>Up</answer>", grammar=ACTIONS, agent=PREFILLED) == MALFORMED
    assert [prefilled_tag(a) for a in (THINK, PREFILLED, PREFILLED_NO_THINK)] == ["", "<think>", "<answer>"]


def test_format_response_writes_requested_form():
    actions = ["Up", "Turn Right"]
    assert format_response("t", actions, THINK, ACTIONS) == "<think>t</think><answer>Up || Turn Right</answer>"
    assert format_response("t", actions, NO_THINK, ACTIONS) == "<answer>Up || Turn Right</answer>"
    assert format_response("t", actions, PREFILLED, ACTIONS) == "t</think><answer>Up || Turn Right</answer>"


@given(text=st.text() | TAG_SOUP, agent=AGENTS)
def test_never_raises_and_never_contradicts_itself(text, agent):
    parsed = parse(text, grammar=ACTIONS, agent=agent)
    assert parsed.known_prefix == parsed.actions[: len(parsed.known_prefix)]
    assert set(parsed.known_prefix) <= set(ACTIONS.names)
    assert parsed.format_ok == (0 < len(parsed.actions) == len(parsed.known_prefix))
    assert (parsed.answer is None) <= (parsed.actions == ())
    assert (parsed.think is None) == (parsed.answer is None or not agent.should_think)


@given(
    think=st.text().filter(lambda text: "<" not in text),
    actions=st.lists(st.sampled_from(ACTIONS.names), min_size=1, max_size=6),
    agent=AGENTS,
    space=st.sampled_from(["", " ", "\n\n"]),
)
def test_round_trip(think, actions, agent, space):
    parsed = parse(format_response(think, actions, agent, ACTIONS) + space, grammar=ACTIONS, agent=agent)
    assert parsed.format_ok
    assert parsed.known_prefix == parsed.actions == tuple(actions)
    assert parsed.think == (think if agent.should_think else None)


def test_reasoning_with_tag_cannot_be_written():
    with pytest.raises(AssertionError, match="contains a tag"):
        format_response("a</think>b", ["Up"], THINK, ACTIONS)


@pytest.mark.parametrize(
    "hostile",
    ["<think>" * 100_000, "<" * 1_000_000, "</answer><answer>" * 50_000, " " * 1_000_000, "<think>" + "||" * 400_000],
)
def test_hostile_input_takes_linear_time(hostile):
    started = time.perf_counter()
    parse(hostile, grammar=ACTIONS, agent=THINK)
    parse(f"<think></think><answer>{hostile}</answer>", grammar=ACTIONS, agent=THINK)
    assert time.perf_counter() - started < 5  # a quadratic parser would need minutes for a million characters


SEARCH = Tool(
    "search", "Search.", {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
)
CALLS = ToolCalls((SEARCH,))
CALL = '{"arguments": {"query": "lake"}, "name": "search"}'


def test_tool_calls_have_own_tags():
    calls = f"<tool_call>{CALL}</tool_call>\n<tool_call>\n{CALL}\n</tool_call>"
    parsed = parse(f"<think>t</think>\n{calls}", grammar=CALLS, agent=THINK)
    inner = calls.removeprefix("<tool_call>").removesuffix("</tool_call>")
    assert parsed == ParsedResponse("t", inner, (CALL, CALL), (CALL, CALL), True)
    assert parse(format_response("t", [CALL], NO_THINK, CALLS), grammar=CALLS, agent=NO_THINK).known_prefix == (CALL,)


@pytest.mark.parametrize(
    "response",
    ["", f"<answer>{CALL}</answer>", f"<tool_call>{CALL}", f"<tool_call>{CALL}</tool_call> and", "<tool_call>"],
)
def test_anything_but_whole_calls_is_malformed(response):
    assert parse(f"<think>t</think>{response}", grammar=CALLS, agent=THINK) == MALFORMED


def test_unknown_call_after_known_ones():
    text = f"<think></think><tool_call>{CALL}</tool_call><tool_call>{{}}</tool_call>"
    parsed = parse(text, grammar=CALLS, agent=THINK)
    assert (parsed.actions, parsed.known_prefix, parsed.format_ok) == ((CALL, "{}"), (CALL,), False)


def test_a_free_text_is_one_action():
    parsed = parse("<answer> a | b, c </answer>", grammar=FreeText("Say it."), agent=NO_THINK)
    assert parsed.known_prefix == ("a | b, c",)
    assert not parse("<answer>a || b</answer>", grammar=FreeText("Say it."), agent=NO_THINK).format_ok


def test_patterns_are_separated_as_names_are():
    grammar = Pattern(r"put \d in \d", "put <n> in <m>", "put 1 in 2")
    parsed = parse("<answer>put  1 in 2 || put 3 in 4</answer>", grammar=grammar, agent=NO_THINK)
    assert parsed.known_prefix == ("put 1 in 2", "put 3 in 4")
