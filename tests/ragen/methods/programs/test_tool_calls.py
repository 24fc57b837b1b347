"""Calls in the text of a response: by form, after the reasoning, with values of the types that the tools name."""

import json
import time

import pytest

from starpo.ragen.methods.programs.chat import Call
from starpo.ragen.methods.programs.tool_calls import FORMS, parse_calls


def declare(**properties) -> str:
    parameters = {"type": "object", "properties": properties}
    return json.dumps([{"type": "function", "function": {"name": "search", "parameters": parameters}}])


TOOLS = declare(text={"type": "string"}, number={"type": "integer"})
CALL = Call("search", '{"text": "7", "number": 7}')
WRITTEN = {
    "hermes": '<tool_call>\n{"name": "search", "arguments": {"text": "7", "number": 7}}\n</tool_call>',
    "xml": "<tool_call>\n<function=search>\n<parameter=text>\n7\n</parameter>\n<parameter=number>\n7\n</parameter>\n"
    "</function>\n</tool_call>",
    "glm": "<tool_call>search\n<arg_key>text</arg_key>\n<arg_value>7</arg_value>\n<arg_key>number</arg_key>\n"
    "<arg_value>7</arg_value>\n</tool_call>",
    "lfm": "<|tool_call_start|>[search(text='7', number=7)]<|tool_call_end|>",
    "nemotron": '<TOOLCALL>[{"name": "search", "arguments": {"text": "7", "number": 7}}]</TOOLCALL>',
    "mistral": '[TOOL_CALLS] [{"name": "search", "arguments": {"text": "7", "number": 7}, "id": "call00000"}]',
    "llama": '{"name": "search", "parameters": {"text": "7", "number": 7}}',
}


@pytest.mark.parametrize("form", FORMS)
def test_call_read_in_written_order(form):
    content, (call,), could_read = parse_calls(WRITTEN[form], form, TOOLS)
    assert (content, call, call.arguments, could_read) == ("", CALL, CALL.arguments, True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opening", ["<think>", ""])  # a response that begins inside the reasoning has no opening tag
def test_call_in_reasoning_not_executed(form, opening):
    thought = f"{opening}shall I {WRITTEN[form]}? A <tool_call>, then [TOOL_CALLS]. No</think>"
    assert parse_calls(f"{thought}\n\n{WRITTEN[form]}", form, TOOLS) == (thought, (CALL,), True)
    assert parse_calls(f"{thought}I stay.", form, TOOLS) == (f"{thought}I stay.", (), True)
    unfinished = f"<think>shall I {WRITTEN[form]}"
    assert parse_calls(unfinished, form, TOOLS) == (unfinished, (), True)
    again = f"{thought}\nWell. {unfinished}"
    assert parse_calls(again, form, TOOLS) == (again, (), True)


SEVERAL = {form: f"{written}\n{written}" for form, written in WRITTEN.items() if form in ("hermes", "xml", "glm")}
SEVERAL |= {
    "lfm": "<|tool_call_start|>[search(text='7', number=7), search(text=\"7\", number=7)]<|tool_call_end|>",
    "nemotron": WRITTEN["nemotron"].replace("}]", '}, {"name": "search", "arguments": {"text": "7", "number": 7}}]'),
    "mistral": '[TOOL_CALLS]search[ARGS]{"text": "7", "number": 7}' * 2,
    "llama": f"<|python_tag|>{WRITTEN['llama']}; {WRITTEN['llama']}",
}


@pytest.mark.parametrize("form", FORMS)
def test_several_calls_are_read(form):
    assert parse_calls(SEVERAL[form], form, TOOLS) == ("", (CALL, CALL), True)


def test_text_beside_calls_is_kept():
    text = f"<think>t</think>\nI look. {WRITTEN['hermes']}"
    assert parse_calls(text, "hermes", TOOLS) == ("<think>t</think>\nI look.", (CALL,), True)
    assert parse_calls(text, "hermes", "[]") == (text, (), True)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", "<tool_call>{</tool_call>"),
        ("hermes", '<tool_call>{"name": "other", "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": ["search"], "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "search", "arguments": [1]}</tool_call>'),
        ("hermes", '<tool_call>{"name": "search", "arguments": {}}'),
        ("hermes", '<tool_call>{"name": "search", "arguments": {"n": 1e999}}</tool_call>'),
        ("hermes", "<tool_call>" + "[" * 100_000 + "</tool_call>"),
        ("hermes", WRITTEN["hermes"] + "</tool_call>"),
        ("hermes", WRITTEN["xml"]),
        ("xml", WRITTEN["hermes"]),
        ("xml", "<tool_call><function=other></function></tool_call>"),
        ("xml", "<tool_call><function=search><parameter=text>7</function></tool_call>"),
        ("xml", "<tool_call>" + "<parameter=a>\n" * 20_000 + "</tool_call>"),
        ("glm", "<tool_call>search<arg_key>text</arg_key>7</tool_call>"),
        ("glm", "<tool_call>search" + "</arg_key><arg_value>" * 20_000 + "</tool_call>"),
        ("lfm", "<|tool_call_start|>[search(text=search(text='7'))]<|tool_call_end|>"),
        ("lfm", "<|tool_call_start|>[search(text=open('x').read())]<|tool_call_end|>"),
        ("lfm", "<|tool_call_start|>[search('7')]<|tool_call_end|>"),
        ("lfm", "<|tool_call_start|>[]<|tool_call_end|>"),
        ("lfm", "<|tool_call_start|>[search(text='" + "\\'" * 50_000 + "<|tool_call_end|>"),
        ("lfm", "<|tool_call_start|>" + "[" * 100_000 + "<|tool_call_end|>"),
        ("nemotron", "<TOOLCALL>[]</TOOLCALL>"),
        ("mistral", "[TOOL_CALLS]search[ARGS]7"),
        ("llama", '{"name": "search", "parameters": {'),
        ("llama", "{" * 100_000),
    ],
)
def test_unreadable_call_is_text(form, text):
    started = time.monotonic()
    assert parse_calls(text, form, TOOLS) == (text, (), False)
    assert time.monotonic() - started < 2


CIRCLE = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}}}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "7", "7"),
        ({"type": "string"}, "a\n\n<b> </b>", "a\n\n<b> </b>"),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "seven", "seven"),  # the framework tells the model what is wrong
        ({"type": "number"}, "7", 7),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "True", True),  # as templates that write values as Python does
        ({"type": ["string", "null"]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
        ({"type": "array", "items": {"type": "string"}}, '["7"]', ["7"]),
        ({"type": "object"}, '{"a": 7}', {"a": 7}),
        ({"enum": ["7", "8"]}, "7", "7"),
        ({"const": 7}, "7", 7),
        ({"$ref": "#/$defs/Name"}, "7", "7"),
        ({"$ref": "#/$defs/A"}, "7", 7),  # leads in circles, and so names no type
        ({"$ref": "#/nowhere"}, "seven", "seven"),
        ({"type": "string", "pattern": "(a+)+$"}, "a" * 50 + "b", "a" * 50 + "b"),
        ({"type": 5, "anyOf": 5}, "seven", "seven"),
        (5, "seven", "seven"),
    ],
)
@pytest.mark.parametrize("form", ["xml", "glm"])
def test_value_has_declared_type(form, schema, text, value):
    parameters = {"properties": {"x": schema}, "$defs": {**CIRCLE["$defs"], "Name": {"type": "string"}}}
    tools = json.dumps([{"type": "function", "function": {"name": "search", "parameters": parameters}}])
    written = {
        "xml": f"<tool_call><function=search><parameter=x>\n{text}\n</parameter></function></tool_call>",
        "glm": f"<tool_call>search<arg_key>x</arg_key><arg_value>{text}</arg_value></tool_call>",
    }[form]
    _, (call,), _ = parse_calls(written, form, tools)
    assert json.loads(call.arguments) == {"x": value}
    assert isinstance(json.loads(call.arguments)["x"], bool) == isinstance(value, bool)


@pytest.mark.parametrize("parameters", [None, {}, {"properties": 5}, {"properties": {"text": {}}}])
def test_tool_may_leave_arguments_undeclared(parameters):
    tools = json.dumps([{"type": "function", "function": {"name": "search", "parameters": parameters}}])
    _, (call,), _ = parse_calls(WRITTEN["xml"].replace("7", "seven"), "xml", tools)
    assert json.loads(call.arguments) == {"text": "seven", "number": "seven"}


def test_python_values_are_read_without_evaluation():
    text = r"""[search(text='it\'s\n\x41\u00e9', more={"a": [None, True, 1e3]}, number=-7)]"""
    _, (call,), _ = parse_calls(f"<|tool_call_start|>{text}<|tool_call_end|>", "lfm", TOOLS)
    assert json.loads(call.arguments) == {"text": "it's\nAé", "more": {"a": [None, True, 1000.0]}, "number": -7}
