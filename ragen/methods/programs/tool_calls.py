"""Tool calls in a response's text, by the form that the chat template itself writes.

    response text -> `parse_calls` -> text for the program, and calls

    hermes  <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number       Qwen, Hermes, SmolLM
    llama   {"name": ..., "parameters": {...}}, one or several separated by ';'         Llama 3

Whatever cannot be read, names an unknown tool or has no object as arguments is left as text.
"""

import re

from pydantic_core import from_json

from starpo.ragen.methods.programs.chat import Call
from starpo.ragen.methods.programs.tasks import as_json

_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_BETWEEN = re.compile(r"(?<=\})\s*;\s*(?=\{)")
_FIELDS = {"hermes": "arguments", "llama": "parameters"}


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
    tag = text.removeprefix("<|python_tag|>").strip()
    if not names or (form == "llama" and not tag.startswith("{")):
        return text, (), True
    pieces, beside = (_HERMES.findall(text), _HERMES.sub("", text)) if form == "hermes" else (_BETWEEN.split(tag), "")
    calls = [_read(piece, _FIELDS[form], names) for piece in pieces]
    if "<tool_call>" in beside or None in calls:
        return text, (), False
    return (beside.strip() if pieces else text), tuple(call for call in calls if call is not None), True


def _read(piece: str, field: str, names: tuple[str, ...]) -> Call | None:
    # Arguments are not checked against the tool's schema, which is the program's: its framework does, and tells the
    # model what is wrong.
    try:
        said = from_json(piece, allow_inf_nan=False)
        if not isinstance(said, dict) or said.keys() != {"name", field}:
            return None
        name, arguments = said["name"], said[field]
        return Call(name, as_json(arguments, sort_keys=True)) if name in names and isinstance(arguments, dict) else None
    except ValueError:  # no JSON, or a number that JSON lacks, such as 1e999
        return None
