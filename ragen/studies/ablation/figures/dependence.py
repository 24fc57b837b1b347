"""Correlation of success with how much the reasoning depends on its prompt, I(X; Z), and with its diversity, H(Z|X)
(RAGEN-2).

AblationResult -> points, one per probe -> rank correlations -> table, verdict          -> draw_dependence -> SVG
"""

import numpy as np

from starpo.ragen.core.pictures import COLOURS, label, new_figure, style, svg
from starpo.ragen.evidence.diagnostics.collapse import SUCCESS
from starpo.ragen.studies.ablation.figures.figure import Figure, Verdicts
from starpo.ragen.studies.ablation.finding import judge_order
from starpo.ragen.studies.ablation.result import AblationResult, CellResult
from starpo.ragen.studies.ranks import RankCorrelation, correlation_over_runs
from starpo.ragen.studies.result import Table

_PROBE = "reasoning/first_turn/token/"
_AXES = {
    f"{_PROBE}mutual_information": "dependence on the prompt, I(X; Z)",
    f"{_PROBE}conditional_entropy": "diversity, H(Z|X)",
}


def points(cell: CellResult, metric: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for every run of a cell, the probes' values and the training success at their iterations. [probes] each

    The probe before the first update is omitted: it measures the warm start, which all cells of a seed share.
    """
    found = []
    for series in cell.series.values():
        values, success = series.get(metric, {}), series.get(SUCCESS, {})
        common = [at for at in values if at > 0 and at in success]
        found.append((np.array([values[at] for at in common]), np.array([success[at] for at in common])))
    return found


def correlations(result: AblationResult) -> dict[str, RankCorrelation | None]:
    """Return metric -> its rank correlation with success over all probes of all runs."""
    return {
        metric: correlation_over_runs([run for cell in result.cells for run in points(cell, metric)])
        for metric in _AXES
    }


def draw_dependence(result: AblationResult) -> str:
    """Draw a result: one dot per probe, one colour per cell; I(X; Z) on the left, H(Z|X) on the right."""
    found = correlations(result)
    note = (
        "each dot: a probe of a run after its first update; nats per token, first turns. Spearman's rank correlation, "
        f"{result.confidence:.0%} interval from resampling whole runs"
    )
    with style():
        figure = new_figure(9.6, 4.6, result.name, note)
        grid = figure.subplots(1, 2, sharey=True)
        handles = []
        for axes, (metric, words) in zip(grid, _AXES.items(), strict=True):
            handles = [
                axes.scatter(
                    *(np.concatenate([run[side] for run in points(cell, metric)] or [np.empty(0)]) for side in (0, 1)),
                    s=22, alpha=0.75, color=COLOURS[number % len(COLOURS)], linewidths=0, gid="probes",
                )
                for number, cell in enumerate(result.cells)
            ]  # fmt: skip
            axes.set_title(str(found[metric] or "no clear ordering"), color="#1f2430")
            axes.set(xlabel=words, ylim=(-0.03, 1.03), yticks=[0, 0.25, 0.5, 0.75, 1])
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
            axes.grid()
        grid[0].set_ylabel("success in training")
        legend = figure.legend(handles, [""] * len(handles), loc="outside lower left", ncols=4)
        for entry, cell in zip(legend.get_texts(), result.cells, strict=True):
            entry.set_text(label(cell.label))
        return svg(figure)


def dependence_tables(result: AblationResult) -> list[Table]:
    """Return one row per axis of RAGEN-2's plane: its rank correlation with success."""
    rows = [
        {"of first turns": _AXES[metric], "probes": str(of.num if of else 0), "with success": str(of or "not measured")}
        for metric, of in correlations(result).items()
    ]
    return [Table("what success goes with", rows, ("of first turns", "with success"))]


def dependence_verdicts(result: AblationResult) -> Verdicts:
    """Judge whether success rises with I(X; Z)."""
    metric = next(iter(_AXES))
    return {"success rising with I(X; Z)": judge_order(correlations(result)[metric])}


DEPENDENCE = Figure(
    "dependence.svg", draw_dependence, ("diagnose", "probe"), (SUCCESS, *_AXES), tables=dependence_tables,
    verdicts=dependence_verdicts,
)  # fmt: skip
