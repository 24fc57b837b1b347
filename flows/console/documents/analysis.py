"""Documents on stored data: audits, ancestors and descendants, views."""

from typing import Any, Literal

from pydantic import Field, RootModel

from starpo.flows.console.documents.document import JsonDocument


class AuditFinding(JsonDocument):
    """The result of an audit."""

    audit: str
    """Its name."""
    title: str
    """Its subject."""
    severity: Literal["note", "warning", "fault"]
    """fault: what is stored contradicts itself (exit code 1). warning: look at it. note: a measurement."""
    summary: str
    """The result, with its numbers."""
    meaning: str
    """How to read it, and what to do."""
    rows: list[dict[str, Any]]
    """All rows of its table."""


class AuditName(JsonDocument):
    """An audit that can be named."""

    audit: str
    """Its name."""
    about: str
    """What it checks."""


class LineageWork(JsonDocument):
    """Everything that a stage made from the same inputs."""

    key: str
    """Key of its artifacts."""
    stage: str | None
    """Stage; null if nothing of it is left."""
    kinds: list[str]
    """Kinds of its artifacts in the store."""
    dropped: list[str]
    """Kinds that were dropped and can be derived."""
    names: list[str]
    """Where runs name it: run:iteration:stage."""
    distance: int
    """Steps from the root; negative for what it was made from."""
    is_missing: bool
    """Whether nothing of it is left."""
    replay_fault: str | None = None
    """Why its environment cannot be replayed."""


class LineageEdge(JsonDocument):
    """An input of a work."""

    input: str
    """Key of the input."""
    role: str
    """What it is read as."""
    work: str
    """Key of the work that reads it."""


class LineageGraph(JsonDocument):
    """What an artifact was made from, and what was made from it."""

    root: str
    """Key of the artifact."""
    works: list[LineageWork]
    """Itself and all others within --depth, the nearest first."""
    edges: list[LineageEdge]
    """Who reads whom."""
    missing: list[str]
    """Keys of ancestors that are gone; any means exit code 1."""
    unreadable: list[str]
    """Faults elsewhere in the store, which may hide works."""


class ViewColumn(JsonDocument):
    """A column of a view."""

    column: str
    """Its name."""
    type: str
    """Its type."""
    meaning: str
    """What it holds."""


class View(JsonDocument):
    """A view for `starpo sql`."""

    view: str
    """Its name."""
    about: str | None = None
    """What a row is, if it is derived from other views."""
    sources: list[str] | None = Field(default=None, alias="from")
    """These views."""
    columns: list[ViewColumn]
    """Its columns."""


class AnswerRow(RootModel[dict[str, Any]]):
    """A row of the answer, by the names of its columns."""
