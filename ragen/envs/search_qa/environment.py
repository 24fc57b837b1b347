"""SearchQA (RAGEN-2, environments): find the answer to a question by searching documents, and give it.

Searching pays nothing. An answer ends the episode. It pays 1 for an exact match (SQuAD's evaluation), otherwise its F1
if that is at least 0.3. The episode also ends, with no reward, after ten steps without an answer.

    seed -> question of the library (synthetic, or the user's)
"""

import random
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.grammar import Grammar, Pattern, Tool, ToolCalls, read_call, write_call
from starpo.ragen.envs.search_qa.library import Library, made_up, stored
from starpo.ragen.envs.search_qa.scoring import exact_match, score
from starpo.ragen.envs.search_qa.world import Document, Question
from starpo.ragen.envs.sources import kept_digest

MAX_CHARS = 200
"""Maximum length of a query, and of an answer."""

_HOPS = {"one": (1,), "two": (2,), "both": (1, 2)}
_TEXT = Pattern(
    r"(?:search|finish)\[ ?[^\[\]|<> ][^\[\]|<>]{0,199}\]",
    "search[query] or finish[answer]",
    "search[Ada Ash]",
    max_chars=MAX_CHARS + 10,
    separator=None,
)
_UNUSABLE = re.compile(r"[\[\]|<>\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def _tool(name: str, description: str, parameter: str) -> Tool:
    text = {"type": "string", "minLength": 1, "maxLength": MAX_CHARS}
    schema = {"type": "object", "properties": {parameter: text}, "required": [parameter], "additionalProperties": False}
    return Tool(name, description, schema)


_TOOLS = ToolCalls(
    (
        _tool("search", "Finds the documents that match the query best.", "query"),
        _tool("finish", "Gives the answer and ends the episode.", "answer"),
    )
)
_PARAMETERS = {"search": "query", "finish": "answer"}


class SearchQASettings(EnvironmentSettings):
    """Documents, questions, and how they are searched and answered."""

    type: Literal["search_qa"] = "search_qa"
    actions: Literal["text", "tools"] = "text"
    """'text': `search[query]` and `finish[answer]`. 'tools': calls of the tools `search` and `finish`."""
    documents: str = ""
    """File of documents, objects with `title` and `text`: a JSON list, or one object per line. "": use a synthetic
    world of people and places."""
    documents_digest: str = Field("", pattern="^([0-9a-f]{16})?$")
    """Digest of that file's content; "": filled in from the current file."""
    questions: str = ""
    """File of questions about the documents, objects with `question` and `answers` (a list; any of them is right)."""
    questions_digest: str = Field("", pattern="^([0-9a-f]{16})?$")
    """Digest of that file's content; "": filled in from the current file."""
    num_people: int = Field(120, ge=2, le=256)
    """Number of people in the synthetic world, one document each, in addition to 24 places."""
    world_seed: int = Field(0, ge=0)
    """Seed of the facts of the synthetic world."""
    hops: Literal["one", "two", "both"] = "both"
    """Number of documents that a question about the synthetic world requires."""
    max_steps: int = Field(10, ge=1, le=100)
    """Steps per episode; each is a search or the answer."""
    top_k: int = Field(5, ge=1, le=20)
    """Maximum number of documents that a search returns."""
    max_document_chars: int = Field(800, ge=50, le=20_000)
    """Longer documents are truncated when shown."""
    max_result_chars: int = Field(4000, ge=50, le=100_000)
    """The results of a search are truncated to this many characters in total."""
    min_f1: float = Field(0.3, ge=0.0, le=1.0)
    """An inexact answer pays its F1, or 0 if that is below this threshold."""

    files: ClassVar[Mapping[str, str]] = {"documents": "documents_digest", "questions": "questions_digest"}

    @field_validator("documents_digest", "questions_digest")
    @classmethod
    def _of_the_file(cls, digest: str, info: ValidationInfo) -> str:
        return kept_digest(info.data.get((info.field_name or "").removesuffix("_digest"), ""), digest)

    @model_validator(mode="after")
    def _both_files_or_none(self) -> "SearchQASettings":
        if bool(self.documents) != bool(self.questions):
            present, missing = ("documents", "questions") if self.documents else ("questions", "documents")
            raise ValueError(
                f"{present} names a file and {missing} does not: name both, or neither for a made-up world"
            )
        return self


class SearchQA(Environment[SearchQASettings]):
    """Environment with one question per episode, until it is answered or the steps are used up."""

    settings_type = SearchQASettings
    demonstrator: ClassVar[str] = "starpo.ragen.envs.search_qa.demonstrations:demonstrate"

    def __init__(self, settings: SearchQASettings) -> None:
        super().__init__(settings)
        self._question: Question | None = None
        self._searched: tuple[str, ...] = ()
        self._retrieved: tuple[Document, ...] = ()
        self._answer: str | None = None

    @property
    def library(self) -> Library:
        """Documents, questions and index.

        Raises:
            EnvironmentFault: If the settings name files that cannot be read, or have changed.
            MissingPackageError: If bm25s is not installed.
        """
        s = self.settings
        if s.documents:
            return stored(s.documents, s.documents_digest, s.questions, s.questions_digest)
        return made_up(s.num_people, _HOPS[s.hops], s.world_seed)

    @property
    def question(self) -> Question:
        """Question of the current episode, with its answers."""
        if self._question is None:
            raise EnvironmentFault("search_qa: there is no question before the first reset; call reset")
        return self._question

    @property
    def searched(self) -> tuple[str, ...]:
        """The queries so far."""
        return self._searched

    @property
    def results(self) -> tuple[Document, ...]:
        """Results of the last search, best first."""
        return self._retrieved

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Draw a question from the library."""
        self._question = python_random(seed, "search qa").choice(self.library.questions)
        self._searched, self._retrieved, self._answer = (), (), None
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Search or answer; an answer or the last step ends the episode."""
        question = self.question
        if self.is_over:
            raise EnvironmentFault("search_qa: the episode has ended; call reset")
        if self.grammar.read(action) != action:
            raise EnvironmentFault(f"search_qa: {action!r} is not an action; {self.grammar.describe()}")
        kind, text = self._read(action)
        reward = 0.0
        if kind == "finish":
            self._answer = text
            reward = score(text, question.answers, self.settings.min_f1)
        else:
            self._searched = (*self._searched, text)
            self._retrieved = tuple(self.library.search(text, self.settings.top_k))
        info = {"effective": True, "is_success": self.is_success, "searches": len(self._searched)}
        return self.render(), reward, self.is_over, False, info

    def write(self, kind: str, text: str) -> str:
        """Write an action in the configured form; characters that an action cannot contain become spaces.

        Args:
            kind: search or finish.
            text: Query or answer, any text.
        """
        text = plain(text)
        return f"{kind}[{text}]" if self.settings.actions == "text" else write_call(kind, {_PARAMETERS[kind]: text})

    def _read(self, action: str) -> tuple[str, str]:
        if self.settings.actions == "text":
            kind, _, text = action.removesuffix("]").partition("[")
            return kind, plain(text)
        kind, arguments = read_call(action)
        return kind, plain(arguments[_PARAMETERS[kind]])

    @property
    def actions(self) -> tuple[str, ...]:
        """Empty: a query is any text."""
        return ()

    @property
    def grammar(self) -> Grammar:
        """`search[..]` and `finish[..]`, or two tools."""
        return _TEXT if self.settings.actions == "text" else _TOOLS

    def random_action(self, rng: random.Random) -> str:
        """Return a search for a random document's title, or such a title as the answer."""
        return self.write(rng.choice(("search", "search", "finish")), rng.choice(self.library.documents).title)

    @property
    def is_success(self) -> bool:
        """Whether the answer exactly matches one of the right ones."""
        return self._answer is not None and exact_match(self._answer, self.question.answers)

    @property
    def is_over(self) -> bool:
        """Whether the question has been answered or all steps are used up."""
        return self._answer is not None or len(self._searched) == self.settings.max_steps

    def rules(self) -> str:
        """Return the task description."""
        s = self.settings
        return (
            "Answer the question. Search the documents for what you need, then finish with your answer.\n"
            f"A search shows up to {s.top_k} documents, those that best match the words of your query. You may need "
            "several searches: one document may name the next one to search for.\n"
            "The answer must be a name or a few words, without explanation. A correct answer earns 1, a partly correct "
            "one earns less, a wrong one 0. Searching earns 0.\n"
            f"The episode ends with your answer, or after {s.max_steps} actions without one."
        )

    def state_digest(self) -> str:
        """Return a digest of the question, its answers, the searches, and the given answer."""
        state = (self.question.text, *self.question.answers, "searched", *self._searched, "said", repr(self._answer))
        return blake2b("\0".join(state).encode(errors="replace"), digest_size=8).hexdigest()

    def render(self) -> str:
        """Return the question, the queries, the results of the last search, and the answer."""
        lines = [f"Question: {self.question.text}"]
        if self._searched:
            lines.append(f"Searched: {'; '.join(self._searched)}")
            lines.append(self._results() or "Nothing found.")
        if self._answer is not None:
            lines.append(f"Answer: {self._answer} ({'right' if self.is_success else 'wrong'})")
        return "\n".join(lines)

    def _results(self) -> str:
        limit = self.settings.max_document_chars
        shown = [f"{document.title}: {document.text[:limit]}" for document in self._retrieved]
        return "\n".join(shown)[: self.settings.max_result_chars]


def plain(text: str) -> str:
    """Reduce a query or answer to one line of at most 200 characters, with spaces for unusable characters."""
    return _UNUSABLE.sub(" ", text).strip()[:MAX_CHARS].strip() or "?"
