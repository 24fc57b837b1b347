"""Which groups contribute gradient: norms by the standard deviation of a group's returns, in sixths (RAGEN-2).

AblationResult -> buckets of every run -> table, verdict          AblationResult -> draw_group_gradients -> SVG
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from starpo.ragen.core.pictures import COLOURS, label, new_figure, style, svg
from starpo.ragen.evidence.diagnostics.gradients import NUM_BUCKETS, measured
from starpo.ragen.studies.ablation.figures.figure import Figure, Verdicts
from starpo.ragen.studies.ablation.finding import judge_order
from starpo.ragen.studies.ablation.result import AblationResult, CellResult
from starpo.ragen.studies.ranks import correlation_over_runs
from starpo.ragen.studies.result import Table

_TERMS = {"task": "task", "kl": "KL", "entropy": "entropy bonus"}
_BUCKETS = range(1, NUM_BUCKETS + 1)

Bucket = Mapping[str, float]


def draw_group_gradients(result: AblationResult) -> str:
    """Draw a result: one panel per cell, one line per loss term (mean over iterations and seeds), dots for seeds."""
    note = (
        "norm of the mean gradient of a sixth of the groups, as weighted in the loss; from the sixth whose "
        "returns vary least to the one whose returns vary most; mean over iterations (dots: seeds)"
    )
    with style():
        figure = new_figure(max(6.4, 1.4 + 3.2 * len(result.cells)), 4.2, result.name, note)
        grid = figure.subplots(1, max(1, len(result.cells)), squeeze=False, sharey=True)[0]
        for axes, cell in zip(grid, result.cells, strict=False):
            axes.set_title(label(cell.label, 32))
            for (term, words), colour in zip(_TERMS.items(), COLOURS, strict=False):
                by_bucket = {number: _means(cell, number, f"{term}_norm") for number in _BUCKETS}
                by_bucket = {number: seeds for number, seeds in by_bucket.items() if seeds}
                if not by_bucket:
                    continue
                means = [float(np.mean(seeds)) for seeds in by_bucket.values()]
                axes.plot(list(by_bucket), means, color=colour, marker="o", markersize=4, label=words, gid="term")
                for number, seeds in by_bucket.items():
                    axes.plot([number] * len(seeds), seeds, ".", color=colour, markersize=3, alpha=0.5)
            axes.set(xlabel="sixth of the groups, by reward std", xlim=(0.6, NUM_BUCKETS + 0.4), xticks=list(_BUCKETS))
            axes.set_ylim(bottom=0)
            axes.grid(axis="y")
        grid[0].set_ylabel("norm of the mean gradient")
        if grid[0].get_legend_handles_labels()[0]:
            grid[0].legend()
        return svg(figure)


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


GRADIENTS = Figure(
    "gradients.svg", draw_group_gradients, ("gradient_probe",), ("gradients/",), tables=gradient_tables,
    verdicts=gradient_verdicts,
)  # fmt: skip
