"""`Figure`: how a paper draws an ablation, and what it reads off the drawing."""

from collections.abc import Callable
from dataclasses import dataclass

from starpo.ragen.studies.ablation.result import AblationResult
from starpo.ragen.studies.result import Table

Verdicts = dict[str, str]
"""What is judged -> a verdict as `finding.sentence` takes it."""


def _no_tables(_: AblationResult) -> list[Table]:
    return []


def _no_verdicts(_: AblationResult) -> Verdicts:
    return {}


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        file: Name of its file in the result's folder.
        draw: The result -> an SVG document or a page.
        stages: Whose metrics it needs.
        metrics: Their names, or beginnings that end in '/'.
        has_transcripts: Does it show responses?
        needs_times: Does it compare at equal time?
        tables: What it measures in words.
        verdicts: Whether it shows what the paper reads off it.
    """

    file: str
    draw: Callable[[AblationResult], str]
    stages: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    has_transcripts: bool = False
    needs_times: bool = False
    tables: Callable[[AblationResult], list[Table]] = _no_tables
    verdicts: Callable[[AblationResult], Verdicts] = _no_verdicts
