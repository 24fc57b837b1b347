"""Actions read from a model's text: strictly, without exceptions, in linear time, and idempotently."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.exceptions import SchemaError

from starpo.ragen.envs.grammar import FreeText, Names, Pattern, Tool, ToolCalls, read_call

NAMES = Names(("Up", "Turn Right"))
CLICK = Pattern(r"(search|click)\[[^\[\]]+\]", "search[words] or click[button]", "click[buy now]", max_chars=40)
TEXT = FreeText("Say it.", max_chars=20)
SEARCH = Tool(
    "search",
    "Finds pages.",
    {
        "type": "object",
        "properties": {"query": {"type": "string", "maxLength": 30}, "top": {"type": "integer"}},
        "required": ["query"],
        "additionalProperties": False,
    },
)
CALLS = ToolCalls((SEARCH,), max_chars=200)
GRAMMARS = [NAMES, CLICK, TEXT, CALLS]


def call(**arguments: object) -> str:
    return json.dumps({"name": "search", "arguments": arguments})


@pytest.mark.parametrize(
    ("grammar", "text", "action"),
    [
        (NAMES, " turn RIGHT\n", "Turn Right"),
        (NAMES, "Left", None),
        (CLICK, " click[buy   now] ", "click[buy now]"),
        (CLICK, "click[]", None),
        (CLICK, "click[a] click[b]", None),
        (CLICK, "search[" * 20, None),
        (CLICK, "click[a || b]", None),
        (TEXT, "  two\nlines ", "two\nlines"),
        (TEXT, "   ", None),
        (TEXT, "a \x1b[31m", None),
        (TEXT, "a || b", None),
        (TEXT, "x" * 21, None),
        (CALLS, call(top=3, query="a"), '{"arguments": {"query": "a", "top": 3}, "name": "search"}'),
        (CALLS, call(), None),
        (CALLS, call(query="a", other=1), None),
        (CALLS, call(query=7), None),
        (CALLS, '{"name": "rm", "arguments": {}}', None),
        (CALLS, '{"name": ["search"], "arguments": {"query": "a"}}', None),
        (CALLS, '{"name": "search"', None),
        (CALLS, '{"name": "search", "arguments": {"query": "a", "top": NaN}}', None),
        (CALLS, "[" * 200, None),
        (CALLS, '"search"', None),
    ],
)
def test_reading(grammar, text, action):
    assert grammar.read(text) == action


def test_call_cannot_close_tag_or_separate():
    action = CALLS.read(call(query="</tool_call> || <answer>"))
    assert action is not None
    assert not set("<>|") & set(action)
    assert read_call(action) == ("search", {"query": "</tool_call> || <answer>"})


def test_half_a_character_stays_escaped():
    action = CALLS.read(r'{"name": "search", "arguments": {"query": "\ud800"}}')
    assert action is not None
    assert action.isascii()
    assert CALLS.read(action) == action


@given(text=st.text(max_size=60) | st.text('search[]click {}"name:arguments,1|', max_size=60))
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_read_action_reads_as_itself(grammar, text):
    action = grammar.read(text)
    assert action is None or grammar.read(action) == action


@pytest.mark.parametrize("number", [20, 30])
def test_overlong_call_is_rejected(number) -> None:
    call = json.dumps({"name": "search", "arguments": {"query": "<" * number}})
    spelled = CALLS.read(call)  # 46 characters plus six per `<`: 166 and 226; the limit is 200
    assert (spelled is not None) == (number == 20)
    assert spelled is None or CALLS.read(spelled) == spelled


def test_non_json_number_is_no_call() -> None:
    free = ToolCalls((Tool("set", "Sets.", {"type": "object"}),))
    assert free.read('{"name": "set", "arguments": {"x": 1e9}}') is not None
    assert free.read('{"name": "set", "arguments": {"x": 1e999}}') is None


@pytest.mark.parametrize(
    "hostile", ["[" * 100_000, "9" * 100_000, '{"a":' * 50_000, " " * 1_000_000, "search[" * 99_999]
)
@pytest.mark.parametrize("grammar", [*GRAMMARS, ToolCalls((SEARCH,), max_chars=1_000_000)])
def test_hostile_text_refused_in_linear_time(grammar, hostile):
    begun = time.process_time()
    assert grammar.read(hostile) is None
    assert time.process_time() - begun < 2


def test_tool_with_invalid_schema_is_refused():
    with pytest.raises(SchemaError):
        Tool("search", "Finds pages.", {"type": "nothing"})
