"""Base classes of study results: a name, failures, warnings, and tables to display."""

from abc import abstractmethod
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from starpo.ragen.agents.evaluation.paired import CONFIDENCE


class ResultPart(BaseModel):
    """A part of a result: an immutable record."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Difference(ResultPart):
    """Difference of success, or of mean returns, paired by prompt."""

    mean: float
    """Mean over all pairs."""
    low: float
    """Lower end of the interval; see `ragen.agents.evaluation.paired` for several seeds of training, else
    `ragen.agents.evaluation.comparison`."""
    high: float
    """Upper end."""

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


class Table(NamedTuple):
    """Part of a result as a table of text.

    Attributes:
        title: Title.
        rows: Rows, each column name -> text.
        texts: Non-numeric columns.
    """

    title: str
    rows: list[dict[str, str]]
    texts: tuple[str, ...]


class StudyResult(ResultPart):
    """Result of a study. A function of stored runs and cells alone: the same ones give the same bytes."""

    name: str
    """Name of the study."""
    confidence: float = CONFIDENCE
    """Confidence level of the intervals."""

    @property
    @abstractmethod
    def failures(self) -> dict[str, str]:
        """Run or cell -> why it failed."""

    @property
    @abstractmethod
    def warnings(self) -> list[str]:
        """Caveats for reading the numbers."""


def share(value: float | None) -> str:
    """Format a share for a table; empty for None."""
    return "" if value is None else f"{value:.3f}"


def interval(success: float | None, low: float | None, high: float | None) -> str:
    """Format a success rate with its interval for a table; the rate alone without one, and empty for None."""
    return share(success) if low is None or high is None else f"{share(success)} [{low:.3f}, {high:.3f}]"
