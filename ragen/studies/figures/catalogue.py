"""The figures by the names that grids use."""

from starpo.ragen.studies.ablation import AblationResult
from starpo.ragen.studies.figures.correlations import DEPENDENCE, GRADIENTS
from starpo.ragen.studies.figures.figure import Figure
from starpo.ragen.studies.figures.league import LEAGUE
from starpo.ragen.studies.figures.signals import SIGNALS
from starpo.ragen.studies.figures.success import SUCCESS_CURVES
from starpo.ragen.studies.figures.trends import LENGTH, RESPONSES
from starpo.ragen.studies.grid import FigureName

FIGURES: dict[FigureName, Figure] = {
    "success": SUCCESS_CURVES,
    "signals": SIGNALS,
    "length": LENGTH,
    "responses": RESPONSES,
    "dependence": DEPENDENCE,
    "gradients": GRADIENTS,
    "league": LEAGUE,
}
"""What a grid selects is drawn beside the success curves, if it is drawn at all."""


def draw_figures(result: AblationResult) -> dict[str, str]:
    """Return file -> drawing: the success curves, and the figure that the grid selects."""
    figures = (SUCCESS_CURVES, FIGURES[result.grid.figure])
    return {figure.file: figure.draw(result) for figure in figures if figure.draw}
