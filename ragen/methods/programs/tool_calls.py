"""Tool calls in a response's text, by the form that the chat template itself writes.

    response text -> `parse_calls` -> text for the program, and calls

    hermes  <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number       Qwen, Hermes, SmolLM
    llama   {"name": ..., "parameters": {...}}, one or several separated by ';'         Llama 3

Whatever cannot be read, names an unknown tool or has no object as arguments is left as text.
"""

import json
import re
from functools import lru_cache

from starpo.ragen.envs.grammar import Tool, ToolCalls, read_call
from starpo.ragen.methods.programs.chat import Call, spelled

_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_MAX_CHARS = 1_000_000


def parse_calls(text: str, form: str, names: tuple[str, ...]) -> tuple[str, tuple[Call, ...], bool]:
    """Split a response into text and calls.

    Args:
        text: The response without its end token.
        form: 'hermes' or 'llama'.
        names: Tools that may be called.

    Returns:
        The text beside the calls, the calls, and whether all that looks like a call could be read; if not, the text is
        the whole response and there are no calls.
    """
    if not names:
        return text, (), True
    tag = text.removeprefix("<|python_tag|>").strip()
    if form == "hermes":
        pieces, beside = _HERMES.findall(text), _HERMES.sub("", text)
        is_broken = "<tool_call>" in beside
    else:
        pieces, beside, is_broken = (_separated(tag), "", False) if tag.startswith("{") else ([], text, False)
    read = [_grammar(names).read(_as_hermes(piece) if form == "llama" else piece) for piece in pieces]
    if is_broken or None in read:
        return text, (), False
    calls = (read_call(action) for action in read if action is not None)
    return (beside.strip() if pieces else text), tuple(Call(name, spelled(given)) for name, given in calls), True


@lru_cache(maxsize=64)
def _grammar(names: tuple[str, ...]) -> ToolCalls:
    # Arguments are not checked against the tool's schema, which is the program's: its framework does, and tells the
    # model what is wrong.
    return ToolCalls(tuple(Tool(name, "", {"type": "object"}) for name in names), max_chars=_MAX_CHARS)


def _separated(text: str) -> list[str]:
    """Split JSON objects that are separated by ';'; one piece if they cannot be told apart."""
    pieces, place, decoder = [], 0, json.JSONDecoder()
    try:
        while place < len(text):
            _, end = decoder.raw_decode(text, place)
            pieces.append(text[place:end])
            place = end + len(re.match(r"\s*;?\s*", text[end:])[0])  # type: ignore[index]
    except (ValueError, RecursionError):
        return [text]
    return pieces


def _as_hermes(piece: str) -> str:
    try:
        call = json.loads(piece)
    except (ValueError, RecursionError):
        return piece
    if not isinstance(call, dict) or call.keys() != {"name", "parameters"}:
        return piece
    return json.dumps({"name": call["name"], "arguments": call["parameters"]})
