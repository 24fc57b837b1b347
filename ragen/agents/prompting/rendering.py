"""Rendering of chat templates, which are programs that come with a model: in a process with limits of its own.

    template, conversations -> this file as a child process -> texts

The child gets no environment variables but the search path of modules, at most 1 GiB of memory (where the system can
limit it: macOS cannot) and 5 s of CPU time.

It renders as transformers' `apply_chat_template` does (utils/chat_template_utils.py), except that `strftime_now` knows
one date only: with today's, prompts would change from day to day.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from itertools import accumulate, groupby
from threading import Lock
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from starpo.ragen.core.errors import TemplateError

_MAX_BYTES, _MAX_CPU_S, _MAX_CHARACTERS = 1 << 30, 5, 1_000_000
_MAX_BATCH = 1_000_000  # characters of messages in one process, far from the limits
_PATIENCE_S = 120.0  # of wall time: the machine may be busy with other work
_DATE = date(2024, 7, 26)
_CACHED = 64

Message = Mapping[str, str]


def render(
    template: str, conversations: Sequence[Sequence[Message]], variables: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Render conversations with a chat template.

    Args:
        template: Jinja source.
        conversations: Messages with `role` and `content`. [num_conversations]
        variables: Other variables of the template, such as `bos_token` and `tools`.

    Returns:
        (text, "") of each conversation, or ("", error) where the template fails. [num_conversations]

    Raises:
        TemplateError: If the template exceeds the limits.
    """
    return list(_rendered(json.dumps([template, conversations, variables])))


def render_all(template: str, renderings: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Render many conversations, each with variables of its own, a few hundred in a process; nothing is cached.

    Args:
        template: Jinja source.
        renderings: Variables of each rendering, `messages` among them. [num_renderings]

    Yields:
        (text, "") of each, or ("", error) where the template fails. [num_renderings]

    Raises:
        TemplateError: If the template exceeds the limits.
    """
    sizes = accumulate(len(json.dumps(rendering["messages"])) + _MAX_BATCH // 500 for rendering in renderings)
    numbered = zip((size // _MAX_BATCH for size in sizes), renderings, strict=True)
    for _, batch in groupby(numbered, key=lambda one: one[0]):
        yield from _render(json.dumps([template, [rendering for _, rendering in batch], {}]))


def _rendered(request: str) -> tuple[tuple[str, str], ...]:
    """Render, once for all threads that ask for the same at a time: each rendering starts a process."""
    with _asking:
        lock = _lock(request)
    with lock:
        return _cached(request)


_asking = Lock()


@lru_cache(maxsize=_CACHED)
def _lock(_request: str) -> Lock:
    return Lock()


@lru_cache(maxsize=_CACHED)
def _cached(request: str) -> tuple[tuple[str, str], ...]:
    return _render(request)


def _render(request: str) -> tuple[tuple[str, str], ...]:
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", __file__]
    try:
        done = subprocess.run(
            command, input=request, env=environment, capture_output=True, encoding="utf-8", timeout=_PATIENCE_S
        )
        return tuple((text, error) for text, error in json.loads(done.stdout))
    except (subprocess.TimeoutExpired, ValueError):  # killed by a limit: no answer, or half of one
        raise TemplateError(
            f"the chat template exceeds what a template may use: {_MAX_CPU_S} s of CPU time, {_MAX_BYTES >> 30} GiB of "
            "memory. Set agent.chat_template to another one"
        ) from None


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
    raise jinja2.TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _serve() -> None:
    """Answer the request on standard input, in the child."""
    template, conversations, variables = json.load(sys.stdin)
    limits = {resource.RLIMIT_AS: _MAX_BYTES, resource.RLIMIT_CPU: _MAX_CPU_S, resource.RLIMIT_CORE: 0}
    for limit, value in limits.items():
        with suppress(ValueError, OSError):  # macOS limits no address space; the parent's patience still ends the child
            resource.setrlimit(limit, (value, value))
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    sandbox.filters["tojson"] = _to_json
    sandbox.globals |= {"raise_exception": _refuse, "strftime_now": _DATE.strftime}
    variables = {"date_string": _DATE.strftime("%d %b %Y"), "add_generation_prompt": True, **variables}
    compiled = lru_cache(sandbox.from_string)  # an error is raised again for each conversation
    answers = []
    for conversation in conversations:
        given = conversation if isinstance(conversation, dict) else {"messages": conversation}
        try:
            text, error = compiled(template).render(**(variables | given)), ""
            if len(text) > _MAX_CHARACTERS:
                raise ValueError(f"it writes {len(text):,} characters for {len(given['messages'])} short messages")
        except Exception as problem:  # a template may raise anything
            text, error = "", f"{type(problem).__name__}: {problem}".strip(": ")
        answers.append((text, error))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    _serve()
