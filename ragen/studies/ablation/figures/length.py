"""Length of the reasoning over training (RAGEN, Fig. 11).

AblationResult -> draw_length -> SVG
"""

from statistics import fmean

from starpo.ragen.core.pictures import COLOURS, label, new_figure, style, svg, updates_axis
from starpo.ragen.evidence.diagnostics.smoothing import exponential_moving_average
from starpo.ragen.studies.ablation.figures.figure import Figure, Verdicts
from starpo.ragen.studies.ablation.figures.trends import shrinking_verdicts, trend_table
from starpo.ragen.studies.ablation.result import AblationResult
from starpo.ragen.studies.result import Table

_LENGTH = "rollout/reasoning_characters_mean"


def draw_length(result: AblationResult) -> str:
    """Draw a result: one colour per cell; the thick line is the smoothed mean over seeds, thin lines are runs."""
    note = "characters of reasoning per response in training; thick: mean over seeds, EMA of 0.9; thin: runs"
    with style():
        figure = new_figure(7.6, 4.2, result.name, note)
        axes = figure.subplots()
        updates_axis(axes)
        lines = []
        for number, cell in enumerate(result.cells):
            colour = COLOURS[number % len(COLOURS)]
            runs = [points for of_run in cell.series.values() if (points := of_run.get(_LENGTH))]
            for points in runs:
                axes.plot(list(points), list(points.values()), color=colour, linewidth=0.6, alpha=0.35, gid="run")
            common = sorted(set.intersection(*map(set, runs))) if runs else []
            means = exponential_moving_average([fmean(points[at] for points in runs) for at in common])
            lines += axes.plot(common, means, color=colour, linewidth=2, gid="mean")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("characters")
        legend = figure.legend(lines, [""] * len(lines), loc="outside lower left", ncols=4)
        for entry, cell in zip(legend.get_texts(), result.cells, strict=True):
            entry.set_text(label(cell.label))
        return svg(figure)


def length_tables(result: AblationResult) -> list[Table]:
    """Return the length at the beginning and at the end, and its change per seed, with the last iteration that had any
    reasoning if later ones had none."""
    title = "characters of reasoning per response that has any, in training"
    return [trend_table(result, _LENGTH, title, 1, "change by seed", lambda trend: f"{trend.change:+.0%}")]


def length_verdicts(result: AblationResult) -> Verdicts:
    """Judge for each cell whether reasoning becomes shorter."""
    return shrinking_verdicts(result, _LENGTH, "shorter reasoning")


LENGTH = Figure(
    "length.svg", draw_length, ("diagnose",), (_LENGTH,), tables=length_tables, verdicts=length_verdicts
)  # fmt: skip
