"""Generalisation matrix: one row per run by training environment, one column per panel, success before and after.

SweepResult of a matrix -> entries -> draw_matrix -> SVG, matrix_rows -> table
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starpo.ragen.core.pictures import label, new_figure, style, svg
from starpo.ragen.studies.result import Difference
from starpo.ragen.studies.sweep.heat_map import DARK, column_width, draw_sweep
from starpo.ragen.studies.sweep.result import Score, SweepResult

_FRAME = "#c2570c"


@dataclass(frozen=True)
class Entry:
    """A run on a panel.

    Attributes:
        first: Score of its first checkpoint; None if not measured.
        last: Score of its last checkpoint; None if not measured.
        difference: Last minus first, paired by prompt; None if one of them was not measured.
        is_own: Whether the run trains on this environment.
        is_failed: Whether a cell could not be evaluated.
    """

    first: Score | None
    last: Score | None
    difference: Difference | None
    is_own: bool
    is_failed: bool

    @property
    def words(self) -> str:
        """First and last success in percent, and the interval of the last."""
        if self.last is None:
            return "failed" if self.is_failed else "not measured"
        before = f"{100 * self.first.success:.0f} \u2192 " if self.first and self.first is not self.last else ""
        return f"{before}{100 * self.last.success:.0f}%\n{100 * self.last.low:.0f} to {100 * self.last.high:.0f}"


def entries(result: SweepResult) -> Mapping[tuple[str, str], Entry]:
    """Return (run, panel) -> entry; with several temperatures, that of the lowest."""
    found = {}
    for run in sorted(result.runs, key=_by_training(result)):
        for panel in result.environments:
            scores = [score for score in result.scores if (score.run, score.environment) == (run, panel)]
            cells = [cell for cell in result.cells if (cell.run, cell.environment) == (run, panel)]
            coolest = min((cell.temperature for cell in cells), default=0.0)
            scores = sorted((s for s in scores if s.temperature == coolest), key=lambda score: score.iteration)
            asked = sorted({cell.iteration for cell in cells})
            by_iteration = {score.iteration: score for score in scores}
            ends = (asked[0], asked[-1]) if asked else None  # only differences between exactly these two
            transfer = next(
                (
                    t
                    for t in result.transfers
                    if (t.run, t.environment, t.temperature) == (run, panel, coolest) and (t.first, t.last) == ends
                ),
                None,
            )
            found[run, panel] = Entry(
                first=by_iteration.get(asked[0]) if asked else None,
                last=by_iteration.get(asked[-1]) if asked else None,
                difference=transfer.difference if transfer else None,
                is_own=panel == result.trained_on.get(run),
                is_failed=any(cell.error for cell in cells),
            )
    return found


def matrix_rows(result: SweepResult) -> list[dict[str, str]]:
    """Return one row per run and panel: success of the first and last checkpoint, and their difference."""
    return [
        {
            "run": run,
            "trains on": result.trained_on.get(run, ""),
            "panel": panel,
            "first": _interval(entry.first),
            "last": _interval(entry.last) or ("failed" if entry.is_failed else "not measured"),
            "last - first": str(entry.difference or ""),
        }
        for (run, panel), entry in entries(result).items()
    ]


def matrix_conclusion(result: SweepResult) -> str:
    """Summarise in a sentence on how many panels that a run does not train on its success rises and falls."""
    away = [entry for entry in entries(result).values() if not entry.is_own and entry.difference]
    if not away:
        return ""
    rises = sum(entry.difference.low > 0 for entry in away if entry.difference)
    falls = sum(entry.difference.high < 0 for entry in away if entry.difference)
    return (
        f"From the first checkpoint to the last, success rises on {rises} and falls on {falls} of {len(away)} panels "
        f"that a run does not train on (the whole {result.confidence:.0%} interval of the paired difference)."
    )


def draw_heat_maps(result: SweepResult) -> dict[str, str]:
    """Return file -> drawing: all scores and, for a matrix sweep, the matrix."""
    matrix = {"generalisation.svg": draw_matrix(result)} if result.sweep.is_matrix else {}
    return {"success.svg": draw_sweep(result), **matrix}


def draw_matrix(result: SweepResult) -> str:
    """Draw a matrix, with a frame around the environment that a run trains on."""
    found = entries(result)
    runs, panels = (list(dict.fromkeys(place[axis] for place in found)) for axis in (0, 1))
    note = (
        "success in percent, first checkpoint \u2192 last; below, the "
        f"{result.confidence:.0%} interval of the last, which is the colour; framed: what the run trains on"
    )
    with style():
        labels = [label(panel, 24) for panel in panels]
        width, height = 4.2 + column_width(labels) * len(panels), 1.9 + 0.55 * len(runs)
        figure = new_figure(max(7.6, width), height, f"Sweep {result.name}", note)
        axes = figure.subplots()
        axes.set_facecolor("#e4e7ec")
        values = [[_success(found[run, panel].last) for panel in panels] for run in runs]
        if values:
            axes.pcolormesh(values, cmap="Blues", vmin=0, vmax=1, edgecolors="white", linewidth=2)
        for (run, panel), entry in found.items():
            x, y = panels.index(panel), runs.index(run)
            ink = "white" if entry.last and entry.last.success > DARK else "#1f2430"
            axes.text(x + 0.5, y + 0.5, entry.words, ha="center", va="center", color=ink, fontsize=8)
            if entry.is_own:
                corners = [(x + 0.03, y + 0.05), (x + 0.97, y + 0.05), (x + 0.97, y + 0.95), (x + 0.03, y + 0.95)]
                axes.plot(*zip(*corners, corners[0], strict=True), color=_FRAME, linewidth=1.6, gid="own")
        axes.set_xticks([at + 0.5 for at in range(len(panels))], labels)
        axes.set_yticks(
            [at + 0.5 for at in range(len(runs))],
            [f"{label(result.trained_on.get(run, ''), 24)}\n{label(run, 48)}" for run in runs],
        )
        axes.set(xlabel="plays", ylabel="trains on")
        axes.xaxis.set_label_position("top")
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.spines[:].set_visible(False)
        axes.invert_yaxis()
        return svg(figure)


def _by_training(result: SweepResult) -> Callable[[str], int]:
    """Return a sort key that puts runs of the same training environment together, in the requested order."""
    order = list(dict.fromkeys(result.trained_on.values()))
    return lambda run: order.index(result.trained_on[run]) if run in result.trained_on else len(order)


def _success(score: Score | None) -> float:
    return float("nan") if score is None else score.success


def _interval(score: Score | None) -> str:
    return "" if score is None else f"{score.success:.3f} [{score.low:.3f}, {score.high:.3f}]"
