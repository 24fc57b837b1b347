"""What results of studies have in common: a name, what failed, what to keep in mind, and tables for people."""

from abc import abstractmethod
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of a result: a record that is written once."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Difference(Part):
    """Success minus that of another, prompt by prompt."""

    mean: float
    """Over all pairs."""
    low: float
    """Lower end of the paired bootstrap interval; see `ragen.studies.bootstrap`."""
    high: float
    """Upper end."""

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


class Table(NamedTuple):
    """Part of a result in words.

    Attributes:
        title: What it shows.
        rows: Name of a column -> text.
        texts: Columns that are no numbers.
    """

    title: str
    rows: list[dict[str, str]]
    texts: tuple[str, ...]


class StudyResult(Part):
    """A result. Made of stored runs and cells alone: the same ones give the same bytes."""

    name: str
    """Of the study."""

    @property
    @abstractmethod
    def failures(self) -> dict[str, str]:
        """Run or cell -> why it failed."""

    @property
    @abstractmethod
    def warnings(self) -> list[str]:
        """What to keep in mind when reading the numbers."""


def share(value: float | None) -> str:
    """A share in a table; nothing where there is none."""
    return "" if value is None else f"{value:.3f}"
