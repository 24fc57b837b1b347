"""Which signal falls first when training collapses (RAGEN, Fig. 6).

AblationResult -> events of every run -> table, verdicts          AblationResult -> draw_signals -> SVG

Which metric falls first is determined in hindsight, by the same criterion for both: halfway from the peak to the end.
Signals may not look ahead and have thresholds of their own, which decide which of them is raised first.
"""

from dataclasses import dataclass
from statistics import median

import numpy as np

from starpo.ragen.core.pictures import COLOURS, label, new_figure, style, svg, updates_axis
from starpo.ragen.evidence.diagnostics.fall import MIN_POINTS
from starpo.ragen.learning.control.collapse import GRADIENT, RETURN, REWARD_STD, SUCCESS, diagnose
from starpo.ragen.learning.control.smoothing import exponential_moving_average
from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.studies.ablation import AblationResult
from starpo.ragen.studies.figures.figure import Figure, Verdicts
from starpo.ragen.studies.result import Table

_DRAWN = {
    REWARD_STD: "in-group reward std",
    RETURN: "mean return",
    GRADIENT: "gradient norm",
    SUCCESS: "success in training",
}
_FALLING = (REWARD_STD, RETURN)
_SMOOTHED = (REWARD_STD, RETURN, SUCCESS)
_MAX_CELLS = 4
_WINDOW = 5


@dataclass(frozen=True)
class Events:
    """Events of a run and their iterations; None if an event did not occur.

    Attributes:
        cell: Label of its cell.
        seed: Its seed.
        raised: Metric -> iteration at which its signal was first raised.
        halfway: Metric -> iteration from which it stayed below the midpoint of its peak and its end, in hindsight.
        fell: Iteration at which training success had halved for good, in hindsight.
    """

    cell: str
    seed: int
    raised: dict[str, int | None]
    halfway: dict[str, int | None]
    fell: int | None


def events(result: AblationResult) -> list[Events]:
    """Return the events of every run that has metrics."""
    found = []
    for cell in result.cells:
        for seed, series in cell.series.items():
            signals = diagnose(series).signals
            raised = {name: next((s.iteration for s in signals if s.name == name), None) for name in _DRAWN}
            half = {name: halfway(series.get(name, {})) for name in _FALLING}
            found.append(Events(cell.label, seed, raised, half, cell.fell.get(seed)))
    return found


def halfway(points: Series) -> int | None:
    """Find the iteration from which a metric stays below the midpoint of its peak and its end.

    The curve and its peak are smoothed by a centred mean of five points, which does not lag; the end is the mean of the
    last five points.

    Returns:
        None if it ends at its peak, or if there are fewer than ten points.
    """
    if len(points) < MIN_POINTS:
        return None
    values = np.array(list(points.values()))
    reach = _WINDOW // 2
    smooth = np.array([values[max(0, at - reach) : at + reach + 1].mean() for at in range(len(values))])
    above = np.flatnonzero(smooth >= (smooth.max() + values[-_WINDOW:].mean()) / 2)
    start = int(above[-1]) + 1
    return list(points)[start] if start < len(values) else None


def draw_signals(result: AblationResult) -> str:
    """Draw a result: one row per metric, one column per cell (at most the first four), one colour per seed.

    A dashed line marks where the metric's signal was first raised.
    """
    cells = result.cells[:_MAX_CELLS]
    note = (
        "one colour per seed, EMA of 0.9 except the gradient norm; dashed: the first iteration at which the signal "
        "could be raised, from that and earlier iterations"
    )
    first = {(of.cell, of.seed): of.raised for of in events(result)}
    with style():
        figure = new_figure(max(5.2, 1.2 + 2.9 * len(cells)), 8.0, result.name, note)
        grid = figure.subplots(len(_DRAWN), len(cells), squeeze=False, sharex="col", sharey="row")
        for column, cell in enumerate(cells):
            grid[0, column].set_title(label(cell.label, 32))
            for row, (metric, words) in enumerate(_DRAWN.items()):
                axes = grid[row, column]
                updates_axis(axes)
                axes.set_xlabel("updates" if row == len(_DRAWN) - 1 else "")
                if column == 0:
                    axes.set_ylabel(words)
                if metric == GRADIENT:  # spikes are thousands of times the rest, and the norm can be 0
                    axes.set_yscale("symlog", linthresh=0.1)
                    axes.yaxis.set_major_formatter("{x:g}")
                for number, seed in enumerate(cell.series):
                    points, colour = cell.series[seed].get(metric, {}), COLOURS[number % len(COLOURS)]
                    values = list(points.values())
                    drawn = exponential_moving_average(values) if metric in _SMOOTHED else values
                    axes.plot(list(points), drawn, color=colour, linewidth=1.2, gid="curve")
                    if (at := first[cell.label, seed][metric]) is not None:
                        axes.axvline(at, color=colour, linestyle="--", linewidth=0.9, gid="signal")
        return svg(figure)


def signal_tables(result: AblationResult) -> list[Table]:
    """Return one row per run: when signals were first raised and, in hindsight, when metrics were halfway down and
    success had halved."""
    rows = [
        {
            "cell": of.cell,
            "seed": str(of.seed),
            **{f"{words}: signal": _at(of.raised[metric]) for metric, words in _DRAWN.items()},
            **{f"{_DRAWN[metric]}: halfway down": _at(of.halfway[metric]) for metric in _FALLING},
            "success halved": _at(of.fell),
        }
        for of in events(result)
    ]
    return [Table("when signals were raised, and when metrics fell (in hindsight)", rows, ("cell",))]


def signal_verdicts(result: AblationResult) -> Verdicts:
    """Judge, over the runs that fell, whether the reward std falls before the return, and whether the gradient norm
    spikes by the time of the fall."""
    fallen = [of for of in events(result) if of.fell is not None]
    leads = [_lead(of) for of in fallen]
    early = [lead for lead in leads if lead is not None and lead > 0]
    lead = f", by {median(early):g} iterations (median)" if early else ""
    spikes = [of for of in fallen if (at := of.raised[GRADIENT]) is not None and at <= (of.fell or 0)]
    return {
        "the reward std falling before the return": _judge(len(early), len(fallen), lead),
        "the gradient norm spiking by the fall": _judge(len(spikes), len(fallen), ""),
    }


def _lead(of: Events) -> int | None:
    """Return the number of iterations by which the reward std is halfway down before the return."""
    std, end = of.halfway[REWARD_STD], of.halfway[RETURN]
    return None if std is None or end is None else end - std


def _judge(num: int, of: int, detail: str) -> str:
    if of == 0:
        return "cannot show: no run fell"
    said = f"in {num} of {of} runs that fell{detail}"
    return f"shows ({said})" if num == of else f"does not show ({said})"


def _at(iteration: int | None) -> str:
    return "never" if iteration is None else str(iteration)


SIGNALS = Figure(
    "signals.svg", draw_signals, ("diagnose", "update"), tuple(_DRAWN), tables=signal_tables, verdicts=signal_verdicts
)  # fmt: skip
