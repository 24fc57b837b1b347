"""The figures by the names that grids use."""

from starpo.ragen.studies.ablation.figures.bars import BARS
from starpo.ragen.studies.ablation.figures.dependence import DEPENDENCE
from starpo.ragen.studies.ablation.figures.figure import Figure
from starpo.ragen.studies.ablation.figures.gradients import GRADIENTS
from starpo.ragen.studies.ablation.figures.league import LEAGUE
from starpo.ragen.studies.ablation.figures.length import LENGTH
from starpo.ragen.studies.ablation.figures.signals import SIGNALS
from starpo.ragen.studies.ablation.figures.transcripts import TRANSCRIPTS
from starpo.ragen.studies.ablation.grid import FigureName
from starpo.ragen.studies.ablation.plot import draw_ablation
from starpo.ragen.studies.ablation.result import AblationResult

FIGURES: dict[FigureName, Figure] = {
    "success": Figure("success.svg", draw_ablation),
    "bars": BARS,
    "signals": SIGNALS,
    "length": LENGTH,
    "transcripts": TRANSCRIPTS,
    "dependence": DEPENDENCE,
    "gradients": GRADIENTS,
    "league": LEAGUE,
}
"""If a grid selects a figure other than 'success', both are drawn."""


def draw_figures(result: AblationResult) -> dict[str, str]:
    """Return file -> drawing: the success curves, and the figure that the grid selects."""
    figures = (FIGURES["success"], FIGURES[result.grid.figure])
    return {figure.file: figure.draw(result) for figure in figures}
