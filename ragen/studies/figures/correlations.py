"""What rises with what (RAGEN-2): success with the reasoning's dependence on its prompt, I(X; Z), and its diversity,
H(Z|X); and gradients with the standard deviation of a group's returns, in sixths.

AblationResult -> points, one per probe -> rank correlations -> table, verdict          -> draw_dependence -> SVG
AblationResult -> buckets of every run -> table, verdict
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from starpo.ragen.core.pictures import COLOURS, new_figure, style, svg
from starpo.ragen.evidence.diagnostics.gradients import measured
from starpo.ragen.learning.control.collapse import SUCCESS
from starpo.ragen.learning.metrics.gradients import NUM_BUCKETS
from starpo.ragen.studies.ablation import AblationResult, CellResult
from starpo.ragen.studies.figures.figure import Figure, Verdicts, cell_legend
from starpo.ragen.studies.finding import judge_order
from starpo.ragen.studies.ranks import RankCorrelation, correlation_over_runs
from starpo.ragen.studies.result import Table

_PROBE = "reasoning/first_turn/token/"
_AXES = {
    f"{_PROBE}mutual_information": "dependence on the prompt, I(X; Z)",
    f"{_PROBE}conditional_entropy": "diversity, H(Z|X)",
}
_TERMS = {"task": "task", "kl": "KL", "entropy": "entropy bonus"}
_BUCKETS = range(1, NUM_BUCKETS + 1)

Bucket = Mapping[str, float]


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
        cell_legend(figure, handles, result)
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


def gradient_tables(result: AblationResult) -> list[Table]:
    """Return one row per cell and sixth: mean reward std, norms of the terms, and the task's signal-to-noise ratio."""
    rows = []
    for cell in result.cells:
        for number in _BUCKETS:
            names = ("reward_std", *(f"{term}_norm" for term in _TERMS), "task_snr")
            values = [_means(cell, number, name) for name in names]
            shown = [f"{np.mean(seeds):.3g}" if seeds else "" for seeds in values]
            headings = ("reward std", *_TERMS.values(), "signal to noise of the task")
            rows.append({"cell": cell.label, "sixth": str(number), **dict(zip(headings, shown, strict=True))})
    return [Table("norm of the gradient by the reward std of its groups", rows, ("cell",))]


def gradient_verdicts(result: AblationResult) -> Verdicts:
    """Judge whether the task gradient grows with the reward std of its groups."""
    runs = []
    for cell in result.cells:
        for buckets in _runs(cell):
            found = [bucket for bucket in buckets if "task_norm" in bucket]
            runs.append((_values(found, "reward_std"), _values(found, "task_norm")))
    return {"the task's gradient growing with the reward std": judge_order(correlation_over_runs(runs))}


def _runs(cell: CellResult) -> Iterator[list[Bucket]]:
    """Yield, for each run, the buckets of all iterations."""
    for series in cell.series.values():
        yield [bucket for of in measured(series).values() for bucket in of.values()]


def _values(buckets: Sequence[Bucket], name: str) -> np.ndarray:
    return np.array([bucket[name] for bucket in buckets])


def _means(cell: CellResult, number: int, name: str) -> list[float]:
    """Return the mean over iterations for each seed that has a value."""
    found = []
    for series in cell.series.values():
        buckets = [of[number] for of in measured(series).values() if number in of]
        if values := [bucket[name] for bucket in buckets if name in bucket]:
            found.append(float(np.mean(values)))
    return found


DEPENDENCE = Figure(
    "dependence.svg", draw_dependence, ("diagnose", "probe"), (SUCCESS, *_AXES), tables=dependence_tables,
    verdicts=dependence_verdicts,
)  # fmt: skip
GRADIENTS = Figure(
    stages=("gradient_probe",), metrics=("gradients/",), tables=gradient_tables, verdicts=gradient_verdicts
)
