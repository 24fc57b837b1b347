"""The process that renders chat templates; imports jinja2 alone. Request on standard input, answer on standard output.

The Jinja environment is that of transformers' `apply_chat_template` (utils/chat_template_utils.py), except that
`strftime_now` knows one date only: with today's, prompts would change from day to day.
"""

import json
import resource
import sys
from datetime import date
from typing import Any

from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

FIXED_DATE = date(2024, 7, 26)


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}`, with which templates mark the assistant's text."""

    tags = {"generation"}  # noqa: RUF012 - declared so by jinja2

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller: Any) -> str:
        return str(caller())


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _render(request: dict[str, Any]) -> list[tuple[str, str]]:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": FIXED_DATE.strftime}
    variables = {"date_string": FIXED_DATE.strftime("%d %b %Y"), "add_generation_prompt": True, **request["variables"]}
    answers = []
    for messages in request["conversations"]:
        try:
            text, error = environment.from_string(request["template"]).render(messages=messages, **variables), ""
            if len(text) > request["limits"]["characters"]:
                raise ValueError(f"it writes {len(text):,} characters for {len(messages)} short messages")
        except Exception as problem:  # a template may raise anything
            text, error = "", f"{type(problem).__name__}: {problem}".strip(": ")
        answers.append((text, error))
    return answers


def _main() -> None:
    request = json.load(sys.stdin)
    limits = request["limits"]
    resource.setrlimit(resource.RLIMIT_AS, (limits["bytes"], limits["bytes"]))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    json.dump(_render(request), sys.stdout)


if __name__ == "__main__":
    _main()
