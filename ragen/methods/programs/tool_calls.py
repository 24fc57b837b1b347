"""Tool calls in a response's text, in the form that the chat template itself writes.

    response text, form, tools -> `parse_calls` -> text for the program, and calls

    hermes    <tool_call>{"name": ..., "arguments": {...}}</tool_call>                         Hermes, Qwen2.5, Qwen3
    xml       <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>
                                                                           Qwen3-Coder, Qwen3.5, Nemotron 3
    glm       <tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>    GLM-4.5
    lfm       <|tool_call_start|>[NAME(KEY=value)]<|tool_call_end|>                            LFM2, LFM2.5
    nemotron  <TOOLCALL>[{"name": ..., "arguments": {...}}]</TOOLCALL>                         Nemotron Nano 2
    mistral   [TOOL_CALLS][{"name": ..., "arguments": {...}}] or [TOOL_CALLS]NAME[ARGS]{...}   Mistral, Devstral
    llama     {"name": ..., "parameters": {...}}, one or several separated by ';'              Llama 3

Calls are read after the reasoning: what a model drafts before `</think>` is not executed. Whatever cannot be read,
names an unknown tool or has no object as arguments is left as text. Nothing here evaluates model output or a pattern of
a schema, and reading takes time linear in the length of the text.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, NamedTuple

from pydantic_core import from_json

from starpo.ragen.methods.programs.chat import Call
from starpo.ragen.methods.programs.tasks import as_json

_Schemas = Mapping[str, Any]
"""Name of a tool -> JSON schema of its arguments, as its program sent it: it need not be a valid one."""
_Calls = Iterable[tuple[Any, Any]]
"""Names and arguments as a response has them, of any type."""


def parse_calls(text: str, form: str, tools: str) -> tuple[str, tuple[Call, ...], bool]:
    """Split a response into text and calls.

    Args:
        text: The response without its end token, with an opening `<think>` that the prompt already contains.
        form: One of `FORMS`.
        tools: JSON of the declarations of the tools that may be called.

    Returns:
        The text beside the calls, the calls, and whether all that looks like a call could be read; if not, the text is
        the whole response and there are no calls.
    """
    schemas = _schemas(tools)
    if not schemas:
        return text, (), True
    begin, end, read = FORMS[form]
    thought, end_of_thought, answer = text.rpartition("</think>")
    if begin and "<think>" in answer.partition(begin)[0]:  # all that follows is reasoning
        return text, (), True
    try:
        beside, bodies = _split(answer, begin, end)
        calls = [_checked(name, arguments, schemas) for body in bodies for name, arguments in read(body, schemas)]
    except ValueError:
        return text, (), False
    return ((thought + end_of_thought + beside).strip() if calls else text), tuple(calls), True


def _split(answer: str, begin: str, end: str) -> tuple[str, list[str]]:
    """Return the text beside the marks, and the texts between them.

    Raises:
        ValueError: If a mark is missing.
    """
    if not begin:  # an answer is either calls or text
        body = answer.strip().removeprefix("<|python_tag|>").lstrip()
        return ("", [body]) if body.startswith("{") else (answer, [])
    beside, *called = answer.split(begin)
    if not end:
        return beside, called
    bodies = []
    for piece in called:
        body, mark, after = piece.partition(end)
        if not mark:
            raise ValueError(f"no {end}")
        bodies.append(body)
        beside += after
    if end in beside:
        raise ValueError(f"no {begin}")
    return beside, bodies


def _checked(name: Any, arguments: Any, schemas: _Schemas) -> Call:
    # Arguments are not checked against the tool's schema, which is the program's: its framework does, and tells the
    # model what is wrong.
    if not isinstance(name, str) or name not in schemas or not isinstance(arguments, dict):
        raise ValueError("no call of a tool")
    return Call(name, as_json(arguments))


def _named(call: Any, field: str = "arguments") -> tuple[Any, Any]:
    if not isinstance(call, dict) or call.keys() != {"name", field}:
        raise ValueError(f"no object with name and {field}")
    return call["name"], call[field]


def _hermes(body: str, _: _Schemas) -> _Calls:
    return [_named(_json(body))]


_BETWEEN = re.compile(r"(?<=\})\s*;\s*(?=\{)")


def _llama(body: str, _: _Schemas) -> _Calls:
    return [_named(_json(piece), "parameters") for piece in _BETWEEN.split(body)]


def _list(body: str, _: _Schemas) -> _Calls:
    calls = _json(body)
    if not isinstance(calls, list) or not calls:
        raise ValueError("no list of calls")
    return [
        _named({key: value for key, value in call.items() if key != "id"} if isinstance(call, dict) else call)
        for call in calls
    ]


def _mistral(body: str, schemas: _Schemas) -> _Calls:
    name, is_single, arguments = body.partition("[ARGS]")
    return [(name.strip(), _json(arguments))] if is_single else _list(body, schemas)


def _xml(body: str, schemas: _Schemas) -> _Calls:
    name, rest = _between(body.strip(), "<function=", "</function>").partition(">")[::2]
    arguments = {}
    while rest := rest.lstrip():
        key, mark, rest = rest.partition(">")
        end = "\n</parameter>" if rest.startswith("\n") else "</parameter>"
        value, is_ended, rest = rest.partition(end)
        if not key.startswith("<parameter=") or not mark or not is_ended:
            raise ValueError("no parameter")
        key = key.removeprefix("<parameter=")
        arguments[key] = _typed(value.removeprefix("\n"), key, schemas.get(name))
    return [(name, arguments)]


def _glm(body: str, schemas: _Schemas) -> _Calls:
    name, *pieces = body.strip().split("<arg_key>")
    arguments = {}
    for piece in pieces:
        key, _, value = piece.partition("</arg_key>")
        arguments[key] = _typed(_between(value.strip(), "<arg_value>", "</arg_value>"), key, schemas.get(name.strip()))
    return [(name.strip(), arguments)]


_PYTHON = re.compile(
    r"""(?P<call>[A-Za-z_][\w.-]*)\s*\(|(?P<key>[A-Za-z_]\w*)\s*=|(?P<end>\))|(?P<word>True|False|None)\b"""
    r"""|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<same>[][{},:\s]|true\b|false\b|null\b|[-+.\deE]+)""",
    re.DOTALL,
)
_WORDS = {"True": True, "False": False, "None": None}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\n": "", "\\": "\\", "'": "'", '"': '"'}


def _lfm(body: str, _: _Schemas) -> _Calls:
    """Read `[name(key=value, ...), ...]`, values as Python or JSON writes them, by rewriting it as JSON."""
    calls = _json("".join(_as_json_tokens(body)))
    if not isinstance(calls, list) or not calls:
        raise ValueError("no list of calls")
    return map(_named, calls)


def _as_json_tokens(body: str) -> Iterator[str]:
    place, is_in_call = 0, False
    while place < len(body):
        token = _PYTHON.match(body, place)
        if token is None or ((token.lastgroup in ("call", "end")) and is_in_call != (token.lastgroup == "end")):
            raise ValueError(f"no call at {place}")
        place, text = token.end(), token[token.lastgroup or 0]
        match token.lastgroup:
            case "call":
                is_in_call = True
                yield f'{{"name":"{text}","arguments":{{'
            case "end":
                is_in_call = False
                yield "}}"
            case "key":
                yield f'"{text}":'
            case "word":
                yield json.dumps(_WORDS[text])
            case "text":
                yield json.dumps(_ESCAPE.sub(_unescaped, text[1:-1]))
            case _:
                yield text


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, escape[0])


class _Form(NamedTuple):
    """Marks around a call, and what reads the text between them; it raises a ValueError if that is no call."""

    begin: str
    end: str
    read: Callable[[str, _Schemas], _Calls]


FORMS: Mapping[str, _Form] = {
    "hermes": _Form("<tool_call>", "</tool_call>", _hermes),
    "xml": _Form("<tool_call>", "</tool_call>", _xml),
    "glm": _Form("<tool_call>", "</tool_call>", _glm),
    "lfm": _Form("<|tool_call_start|>", "<|tool_call_end|>", _lfm),
    "nemotron": _Form("<TOOLCALL>", "</TOOLCALL>", _list),
    "mistral": _Form("[TOOL_CALLS]", "", _mistral),
    "llama": _Form("", "", _llama),
}
"""Name of a form -> how it is read."""


def _json(text: str) -> Any:
    return from_json(text, allow_inf_nan=False)  # a number that JSON lacks, such as 1e999, is none


def _between(text: str, begin: str, end: str) -> str:
    if not (text.startswith(begin) and text.endswith(end)) or len(text) < len(begin) + len(end):
        raise ValueError(f"not between {begin} and {end}")
    return text[len(begin) : -len(end)]


@lru_cache(maxsize=64)
def _schemas(tools: str) -> _Schemas:
    declared = [tool["function"] for tool in json.loads(tools)]
    return {function["name"]: function.get("parameters") for function in declared}


_TYPES = {
    str: ("string",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number", "integer"),
    list: ("array",),
    dict: ("object",),
    NoneType: ("null",),
}
_MAX_SCHEMAS = 100
"""Schemas that are looked at for the type of one argument: references may lead in circles."""


def _typed(text: str, key: str, parameters: Any) -> Any:
    """Return the value that an argument without quotes stands for, by the tool's schema: text where that allows no
    other type, or none that the text is a value of."""
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    schema = properties.get(key) if isinstance(properties, dict) else None
    allowed = _allowed(schema, parameters)
    if allowed == {"string"}:
        return text
    try:
        value = _WORDS[text] if text in _WORDS else _json(text)
    except ValueError:
        return text
    return value if not allowed or allowed.intersection(_TYPES[type(value)]) else text


def _allowed(schema: Any, parameters: Any) -> set[str]:
    """Return the types that a schema allows; empty if it does not say."""
    allowed: set[str] = set()
    waiting = [schema]
    for _ in range(_MAX_SCHEMAS):
        if not waiting:
            return allowed
        schema = waiting.pop()
        if not isinstance(schema, dict):
            return set()
        kinds, values = schema.get("type"), schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(kinds, str | list):
            allowed |= {kinds} if isinstance(kinds, str) else {kind for kind in kinds if isinstance(kind, str)}
        elif isinstance(values, list):
            allowed |= {_TYPES[type(value)][0] for value in values}
        elif isinstance(schema.get("$ref"), str):
            waiting.append(_referred(schema["$ref"], parameters))
        else:
            choices = next((schema[word] for word in ("anyOf", "oneOf", "allOf") if word in schema), None)
            waiting += choices if isinstance(choices, list) and choices else [None]
    return set()


def _referred(reference: str, parameters: Any) -> Any:
    """Return the schema at a reference such as `#/$defs/Color`; None if there is none there."""
    schema = parameters
    for word in reference.removeprefix("#/").split("/"):
        schema = schema.get(word) if isinstance(schema, dict) else None
    return schema
