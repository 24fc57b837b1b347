"""The grammar of an environment's actions: what may stand in an answer, how it is read, and how it is told.

    text between the tags --Grammar.read--> the action's canonical spelling, or None

    Names       a finite set, such as Up, Down
    Pattern     full matches of a regular expression, such as `click[buy now]`
    FreeText    any text up to a length
    ToolCalls   calls of functions with JSON schemas, in the form of Qwen's and Hermes's chat templates

What is read is a model's: nothing here evaluates it, and reading takes time linear in its length.
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
"""Stands between the actions of one answer."""

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")  # all but the line end
_BLANKS = re.compile(r"\s+")


class Grammar(ABC):
    """What an action may be.

    Class attributes:
        tag: The name of the tags around an answer.
        separator: Stands between several actions of one answer; None: an answer is one action.
    """

    tag: ClassVar[str] = "answer"

    @property
    def separator(self) -> str | None:
        """See above."""
        return ACTION_SEPARATOR

    @abstractmethod
    def read(self, said: str) -> str | None:
        """The canonical spelling of what is said, in which the environment is stepped; None: it is no action.

        Args:
            said: One action as a response has it, of any shape and length.
        """

    @abstractmethod
    def told(self) -> str:
        """What the prompt tells of the form of one action, in one or several lines."""

    @property
    def example(self) -> str:
        """What an answer holds, as the prompt's form shows it."""
        return "your action"


@dataclass(frozen=True)
class Names(Grammar):
    """One of a finite set of names, compared without case and surrounding white space.

    Attributes:
        names: All different, whatever their case.
    """

    names: tuple[str, ...]

    @cached_property
    def _by_folded(self) -> dict[str, str]:
        return {name.casefold(): name for name in self.names}

    def read(self, said: str) -> str | None:
        """The name, as the environment spells it."""
        return self._by_folded.get(said.strip().casefold())

    def told(self) -> str:
        """The names."""
        return f"Your available actions are: {', '.join(self.names)}"


@dataclass(frozen=True)
class Pattern(Grammar):
    """Text that a regular expression matches as a whole; each run of white space in it counts as one blank.

    Attributes:
        regex: Without nested repetitions, so that matching takes linear time.
        form: What is told, such as `place <digit> at row <r> col <c>`.
        shown: An action, as an example.
        max_chars: Longer text is no action.
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

    def read(self, said: str) -> str | None:
        """The text, its runs of white space as one blank each."""
        if len(said) > self.max_chars:
            return None
        text = _BLANKS.sub(" ", said.strip())
        return text if ACTION_SEPARATOR not in text and self._compiled.fullmatch(text) else None

    def told(self) -> str:
        """The form, and the example."""
        return f"An action has the form: {self.form}\nFor example: {self.shown}"


@dataclass(frozen=True)
class FreeText(Grammar):
    """Any text that is not blank, without control characters; an answer is one action.

    `||` cannot stand in it: stored episodes separate their actions by it.

    Attributes:
        about: What is told of it, such as `Your answer is one line of text.`
        max_chars: Longer text is no action.
    """

    about: str
    max_chars: int = 400

    @property
    def separator(self) -> str | None:
        """None."""
        return None

    def read(self, said: str) -> str | None:
        """The text without surrounding white space."""
        text = said.strip()
        if not text or len(text) > self.max_chars or ACTION_SEPARATOR in text or _CONTROL.search(text):
            return None
        return text

    def told(self) -> str:
        """What it is about, and the bound."""
        return f"{self.about}\nAt most {self.max_chars} characters."


@dataclass(frozen=True)
class Tool:
    """A function that the agent may call.

    Attributes:
        name: Letters, digits, `_`.
        description: One sentence.
        parameters: JSON schema of its arguments, of type object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(hash=False)

    def __post_init__(self) -> None:
        Draft202012Validator.check_schema(dict(self.parameters))

    @property
    def declaration(self) -> dict[str, Any]:
        """What a chat template is given (OpenAI's form, which Hugging Face's templates take)."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolCalls(Grammar):
    """Calls `{"name": ..., "arguments": {...}}`, each in `<tool_call>` tags of its own; several fit into an answer.

    Attributes:
        tools: What may be called.
        max_chars: A longer call is none, as it is said and as it is spelled.
    """

    tag: ClassVar[str] = "tool_call"
    tools: tuple[Tool, ...]
    max_chars: int = 2000

    @property
    def separator(self) -> str | None:
        """None: what is between calls are their tags."""
        return None

    @cached_property
    def _validators(self) -> dict[str, Draft202012Validator]:
        return {tool.name: Draft202012Validator(dict(tool.parameters)) for tool in self.tools}

    def read(self, said: str) -> str | None:
        """The call as JSON with sorted keys; None where it is no JSON, no tool's name, or breaks the tool's schema."""
        if len(said) > self.max_chars:
            return None
        try:
            call = json.loads(said, parse_constant=_refuse)
            if not isinstance(call, dict) or call.keys() != {"name", "arguments"} or not isinstance(call["name"], str):
                return None
            validator = self._validators.get(call["name"])
            if validator is None or not validator.is_valid(call["arguments"]):
                return None
            spelled = write_call(call["name"], call["arguments"])
            return spelled if len(spelled) <= self.max_chars else None
        except (ValueError, OverflowError, RecursionError):  # no JSON; or a number, such as 1e999, that JSON cannot say
            return None

    def told(self) -> str:
        """Every tool's name, parameters and description."""
        signatures = [
            f"- {tool.name}({', '.join(tool.parameters.get('properties', {}))}): {tool.description}"
            for tool in self.tools
        ]
        return "You act by calling one of these tools:\n" + "\n".join(signatures)

    @property
    def example(self) -> str:
        """A call's form."""
        return '{"name": "tool", "arguments": {...}}'


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call in its canonical spelling: JSON with sorted keys, in which no `||`, no tag and no half of a character can
    stand."""
    text = json.dumps({"name": name, "arguments": arguments}, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return re.sub(r"[|<>\x7f-\x9f\ud800-\udfff]", lambda mark: f"\\u{ord(mark[0]):04x}", text)


def read_call(action: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call that `ToolCalls.read` gave."""
    call = json.loads(action)
    return call["name"], call["arguments"]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
