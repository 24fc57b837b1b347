"""Rows of a file -> questions, with the columns and the scoring that the settings name.

path, digest -> rows -> FileQuestion(text, answers, choices)
"""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import regex

from starpo.ragen.core.settings import Settings
from starpo.ragen.envs.questions.picture import picture_of
from starpo.ragen.envs.questions.scoring import number
from starpo.ragen.envs.sources import Row, read_rows

MAX_CHOICES = len(string.ascii_uppercase)


class Columns(Settings):
    """Names of a file's columns."""

    question: str = "question"
    """Column of the question's text."""
    answer: str = "answer"
    """Column of the right answer: text or a number, or a list of them, of which any is right. Of several choices: a
    letter, a label, a position counted from 0, or a choice's text."""
    choices: str = "choices"
    """Column of the choices: a list of texts, or `text` and `label`, two lists."""
    image: str = ""
    """Column of a picture, shown with agent.observation = 'both': the bytes of an image file, base64, or `bytes` beside
    `path`, as data sets of Hugging Face store images. "": there are no pictures."""


@dataclass(frozen=True)
class FileQuestion:
    """One question.

    Attributes:
        text: What is asked, the choices included.
        answers: Right answers; of several choices, their letters.
        choices: Texts of the choices, A first; empty if there are none.
        picture: An image file, undecoded; empty if there is none.
        row: The row of the file, for a function that scores.
    """

    text: str
    answers: tuple[str, ...]
    choices: tuple[str, ...] = ()
    picture: bytes = field(default=b"", repr=False)
    row: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)


@lru_cache(maxsize=8)
def load_questions(path: str, digest: str, columns: Columns, scoring: str) -> tuple[FileQuestion, ...]:
    """Read the questions of a file; rows that cannot be used are counted and named in a warning.

    Raises:
        EnvironmentFault: See `read_rows`.
    """

    def fault(row: Row) -> str:
        try:
            question_of(row, columns, scoring)
        except ValueError as error:
            return str(error)
        return ""

    return tuple(question_of(row, columns, scoring) for row in read_rows(path, digest, fault))


def question_of(row: Row, columns: Columns, scoring: str) -> FileQuestion:
    """Read a row.

    Raises:
        ValueError: If it has no question, no answer, or an answer that its scoring cannot compare.
    """
    text = row.get(columns.question)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"'{columns.question}' is {_lack(columns.question, row)}")
    answers, picture = _answers(row, columns.answer), _picture(row, columns.image)
    if scoring == "choice":
        choices, labels = _choices(row, columns.choices)
        letters = tuple(_letter(answer, row[columns.answer], choices, labels) for answer in answers)
        lines = (f"{letter}. {choice}" for letter, choice in zip(string.ascii_uppercase, choices, strict=False))
        return FileQuestion("\n".join([text.strip(), *lines]), letters, choices, picture, row)
    for answer in answers:
        if scoring == "number" and number(answer) is None:
            raise ValueError(f"'{columns.answer}' holds no number: {answer[:40]!r}")
        if scoring == "pattern":
            _check_pattern(answer)
    return FileQuestion(text.strip(), answers, (), picture, row)


def _picture(row: Row, column: str) -> bytes:
    if not column:
        return b""
    if column not in row:
        raise ValueError(f"'{column}' is {_lack(column, row)}")
    try:
        return picture_of(row[column])
    except ValueError as error:
        raise ValueError(f"'{column}' {error}") from error


def _lack(column: str, row: Row) -> str:
    if column in row:
        return "empty, or no text"
    return f"missing (the row has {', '.join(map(repr, list(row)[:6])) or 'nothing'}; environment.columns names others)"


def _answers(row: Row, column: str) -> tuple[str, ...]:
    value = row.get(column)
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in values):
        raise ValueError(f"'{column}' is {_lack(column, row)}")
    answers = tuple(str(one).strip() for one in values)
    if not all(answers):
        raise ValueError(f"'{column}' is empty")
    return answers


def _choices(row: Row, column: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts of a row's choices, and their labels."""
    value = row.get(column)
    texts = value.get("text") if isinstance(value, dict) else value
    labels = value.get("label") if isinstance(value, dict) else None
    if not isinstance(texts, list) or not 2 <= len(texts) <= MAX_CHOICES:
        raise ValueError(f"'{column}' is {_lack(column, row) if column not in row else 'no list of 2 to 26 choices'}")
    choices = tuple(" ".join(str(text).split()) for text in texts)
    if len(set(choices)) < len(choices) or not all(choices):
        raise ValueError(f"'{column}' holds a choice twice, or an empty one")
    if not isinstance(labels, list) or len(labels) != len(choices):
        labels = string.ascii_uppercase[: len(choices)]
    return choices, tuple(str(label).strip() for label in labels)


def _letter(answer: str, value: Any, choices: Sequence[str], labels: Sequence[str]) -> str:
    """Return the letter of a right choice, given as a label, a position, or its text."""
    if answer in labels:
        return string.ascii_uppercase[labels.index(answer)]
    if isinstance(value, int) and 0 <= value < len(choices):
        return string.ascii_uppercase[value]
    if (text := " ".join(answer.split())) in choices:
        return string.ascii_uppercase[choices.index(text)]
    raise ValueError(f"the answer {answer[:40]!r} is none of the choices")


def _check_pattern(pattern: str) -> None:
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"{pattern[:40]!r} is no regular expression: {error}") from error
