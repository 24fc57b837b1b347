"""The grammar of an environment's actions: what an answer may contain, how it is parsed, how the prompt describes it.

    text between the tags --Grammar.read--> the action's canonical spelling, or None

    Names       a finite set, such as Up, Down
    Pattern     full matches of a regular expression, such as `click[buy now]`
    FreeText    any text up to a maximum length
    ToolCalls   calls of functions with JSON schemas, in the format of Qwen's and Hermes's chat templates

The input is model output: nothing here evaluates it, and parsing takes time linear in its length.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from jsonschema import Draft202012Validator

ACTION_SEPARATOR = "||"
"""Separates the actions of one answer."""

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")  # all but the newline
_BLANKS = re.compile(r"\s+")


class Grammar(ABC):
    """Syntax of an action.

    Class attributes:
        tag: Name of the tags around an answer.
        separator: Separates the actions of one answer; None if an answer is one action.
    """

    tag: ClassVar[str] = "answer"

    @property
    def separator(self) -> str | None:
        """See the class."""
        return ACTION_SEPARATOR

    @abstractmethod
    def read(self, action: str) -> str | None:
        """Parse an action into the canonical spelling that `Environment.step` takes; None if it is invalid.

        Args:
            action: One action as it appears in a response, of any shape and length.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the prompt's description of the form of one action, in one or several lines."""

    @property
    def example(self) -> str:
        """Placeholder for the content of an answer in the prompt's format description."""
        return "your action"


@dataclass(frozen=True)
class Names(Grammar):
    """One of a finite set of names, compared ignoring case and surrounding whitespace.

    Attributes:
        names: The names, distinct even when case is ignored.
    """

    names: tuple[str, ...]

    @cached_property
    def _by_folded(self) -> dict[str, str]:
        return {name.casefold(): name for name in self.names}

    def read(self, action: str) -> str | None:
        """Return the name in the environment's spelling."""
        return self._by_folded.get(action.strip().casefold())

    def describe(self) -> str:
        """List the names."""
        return f"Your available actions are: {', '.join(self.names)}"


@dataclass(frozen=True)
class Pattern(Grammar):
    """Text that a regular expression matches in full, after each run of whitespace is collapsed to one space.

    Attributes:
        regex: The expression, without nested quantifiers, so that matching takes linear time.
        form: Description for the prompt, such as `place <digit> at row <r> col <c>`.
        shown: Example of an action.
        max_chars: Longer text is rejected.
        separator: See `Grammar`.
    """

    regex: str
    form: str
    shown: str
    max_chars: int = 200
    separator: str | None = ACTION_SEPARATOR

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.regex)

    def read(self, action: str) -> str | None:
        """Return the text with its whitespace collapsed."""
        if len(action) > self.max_chars:
            return None
        text = _BLANKS.sub(" ", action.strip())
        return text if ACTION_SEPARATOR not in text and self._compiled.fullmatch(text) else None

    def describe(self) -> str:
        """Return the form and the example."""
        return f"An action has the form: {self.form}\nFor example: {self.shown}"


@dataclass(frozen=True)
class FreeText(Grammar):
    """Any non-blank text without control characters other than newlines; an answer is one action.

    The text must not contain `||`, which separates the actions in stored episodes.

    Attributes:
        about: Description for the prompt, such as `Your answer is one line of text.`
        max_chars: Longer text is rejected.
    """

    about: str
    max_chars: int = 400

    @property
    def separator(self) -> str | None:
        """Always None."""
        return None

    def read(self, action: str) -> str | None:
        """Return the text without surrounding whitespace."""
        text = action.strip()
        if not text or len(text) > self.max_chars or ACTION_SEPARATOR in text or _CONTROL.search(text):
            return None
        return text

    def describe(self) -> str:
        """Return the description and the length limit."""
        return f"{self.about}\nAt most {self.max_chars} characters."


@dataclass(frozen=True)
class Tool:
    """A function that the agent may call.

    Attributes:
        name: Name of letters, digits and `_`.
        description: One sentence.
        parameters: JSON schema of the arguments, of type object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(hash=False)

    def __post_init__(self) -> None:
        Draft202012Validator.check_schema(dict(self.parameters))

    @property
    def declaration(self) -> dict[str, Any]:
        """Declaration for a chat template (OpenAI's format, which Hugging Face's templates accept)."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolCalls(Grammar):
    """Calls `{"name": ..., "arguments": {...}}`, each in its own `<tool_call>` tags; an answer may hold several.

    Attributes:
        tools: The tools that may be called.
        max_chars: A call that is longer, as written or in its canonical spelling, is rejected.
    """

    tag: ClassVar[str] = "tool_call"
    tools: tuple[Tool, ...]
    max_chars: int = 2000

    @property
    def separator(self) -> str | None:
        """Always None: calls are separated by their tags."""
        return None

    @cached_property
    def _validators(self) -> dict[str, Draft202012Validator]:
        return {tool.name: Draft202012Validator(dict(tool.parameters)) for tool in self.tools}

    def read(self, action: str) -> str | None:
        """Return the call as JSON with sorted keys; None for invalid JSON, an unknown tool or a schema violation."""
        if len(action) > self.max_chars:
            return None
        try:
            call = json.loads(action, parse_constant=_refuse)
            if not isinstance(call, dict) or call.keys() != {"name", "arguments"} or not isinstance(call["name"], str):
                return None
            validator = self._validators.get(call["name"])
            if validator is None or not validator.is_valid(call["arguments"]):
                return None
            spelled = write_call(call["name"], call["arguments"])
            return spelled if len(spelled) <= self.max_chars else None
        except (ValueError, OverflowError, RecursionError):  # no JSON, or a number that JSON lacks, such as 1e999
            return None

    def describe(self) -> str:
        """Return every tool's name, parameters and description."""
        signatures = [
            f"- {tool.name}({', '.join(tool.parameters.get('properties', {}))}): {tool.description}"
            for tool in self.tools
        ]
        return "You act by calling one of these tools:\n" + "\n".join(signatures)

    @property
    def example(self) -> str:
        """Placeholder of a call."""
        return '{"name": "tool", "arguments": {...}}'


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Write a call in its canonical spelling: JSON with sorted keys, escaped so that it cannot contain `||`, tags or
    lone surrogates."""
    text = json.dumps({"name": name, "arguments": arguments}, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return re.sub(r"[|<>\x7f-\x9f\ud800-\udfff]", lambda mark: f"\\u{ord(mark[0]):04x}", text)


def read_call(action: str) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of a call in the canonical spelling of `ToolCalls.read`."""
    call = json.loads(action)
    return call["name"], call["arguments"]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
