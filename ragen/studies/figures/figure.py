"""`Figure`: what an ablation is asked beside its success: a drawing, tables, and what a paper concludes from them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starpo.ragen.core.pictures import label
from starpo.ragen.studies.ablation import AblationResult
from starpo.ragen.studies.result import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Verdicts = dict[str, str]
"""Claim -> verdict, in the form that `finding.sentence` expects."""


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        file: File name in the result's folder; empty if nothing is drawn.
        draw: Result -> an SVG document; None if nothing is drawn.
        stages: Stages whose metrics it needs.
        metrics: Names of these metrics, or prefixes that end in '/'.
        needs_times: Whether it compares cells at equal time.
        tables: Result -> tables of what it shows.
        verdicts: Result -> whether it reproduces what the paper concludes from the figure.
    """

    file: str = ""
    draw: Callable[[AblationResult], str] | None = None
    stages: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    needs_times: bool = False
    tables: Callable[[AblationResult], list[Table]] = lambda _: []
    verdicts: Callable[[AblationResult], Verdicts] = lambda _: {}


def cell_legend(figure: "Drawing", handles: list[Any], result: AblationResult) -> None:
    """Add a legend of the cells below a drawing; labels are set as text, since they are untrusted."""
    legend = figure.legend(handles, [""] * len(handles), loc="outside lower left", ncols=4)
    for entry, cell in zip(legend.get_texts(), result.cells, strict=True):
        entry.set_text(label(cell.label))
