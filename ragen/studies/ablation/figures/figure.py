"""`Figure`: how a paper draws an ablation, and what it concludes from the drawing."""

from collections.abc import Callable
from dataclasses import dataclass

from starpo.ragen.studies.ablation.result import AblationResult
from starpo.ragen.studies.result import Table

Verdicts = dict[str, str]
"""Claim -> verdict, in the form that `finding.sentence` expects."""


def _no_tables(_: AblationResult) -> list[Table]:
    return []


def _no_verdicts(_: AblationResult) -> Verdicts:
    return {}


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        file: File name in the result's folder.
        draw: Result -> an SVG document or an HTML page.
        stages: Stages whose metrics it needs.
        metrics: Names of these metrics, or prefixes that end in '/'.
        has_transcripts: Whether it shows responses.
        needs_times: Whether it compares cells at equal time.
        tables: Result -> tables of what it shows.
        verdicts: Result -> whether it reproduces what the paper concludes from the figure.
    """

    file: str
    draw: Callable[[AblationResult], str]
    stages: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    has_transcripts: bool = False
    needs_times: bool = False
    tables: Callable[[AblationResult], list[Table]] = _no_tables
    verdicts: Callable[[AblationResult], Verdicts] = _no_verdicts
