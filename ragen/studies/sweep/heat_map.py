"""A sweep as one SVG: success as colour and number, one row per checkpoint, one column per environment and temperature.

SweepResult -> draw_sweep -> SVG

If only one checkpoint was evaluated, rows are environments and columns temperatures.
"""

from collections.abc import Iterable, Mapping

from starpo.ragen.core.pictures import label, new_figure, style, svg
from starpo.ragen.studies.sweep.result import Score, SweepResult

DARK = 0.55
"""Success above which the text on a square is white."""


def draw_sweep(result: SweepResult) -> str:
    """Draw a result: every score with its interval; grey if not measured.

    Returns:
        An SVG document.
    """
    scores = {(s.run, s.iteration, s.environment, s.temperature): s for s in result.scores}
    policies = list(dict.fromkeys((cell.run, cell.iteration) for cell in result.cells))
    cells: Mapping[tuple[str, str], Score | None]
    if len(policies) == 1:
        (policy,) = policies
        what = f"of {policy[0]}, checkpoint {policy[1]}, by environment and temperature"
        cells = {
            (label(name), f"T = {t:g}"): scores.get((*policy, name, t))
            for name in result.environments
            for t in result.temperatures
        }
    else:
        what = "by checkpoint, environment and temperature"
        cells = {
            (f"{label(run)}\ncheckpoint {iteration}", f"{label(name)}\nT = {t:g}"): scores.get(
                (run, iteration, name, t)
            )
            for run, iteration in policies
            for name in result.environments
            for t in result.temperatures
        }
    rows, columns = (list(dict.fromkeys(cell[axis] for cell in cells)) for axis in (0, 1))
    seeds = len(result.sweep.seeds)
    note = f"success {what}; {seeds} seed{'s' * (seeds > 1)}; below each its 95% interval"
    with style():
        width, height = 3.2 + column_width(columns) * len(columns), 1.9 + 0.5 * len(rows)
        figure = new_figure(max(7.6, width), height, f"Sweep {result.name}", note)
        axes = figure.subplots()
        axes.set_facecolor("#e4e7ec")
        values = [[_success(cells[row, column]) for column in columns] for row in rows]
        if values:
            squares = axes.pcolormesh(values, cmap="Blues", vmin=0, vmax=1, edgecolors="white", linewidth=2)
            bar = figure.colorbar(squares, ax=axes, aspect=max(8, 4 * len(rows)), pad=0.02, ticks=[0, 0.5, 1])
            bar.ax.set_yticklabels(["0%", "50%", "100%"])
            bar.outline.set_visible(False)
        for (row, column), score in cells.items():
            place = columns.index(column) + 0.5, rows.index(row) + 0.5
            ink = "white" if score and score.success > DARK else "#1f2430"
            axes.text(*place, _text(score), ha="center", va="center", color=ink, fontsize=8)
        axes.set_xticks([at + 0.5 for at in range(len(columns))], columns)
        axes.set_yticks([at + 0.5 for at in range(len(rows))], rows)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.spines[:].set_visible(False)
        axes.invert_yaxis()
        return svg(figure)


def column_width(labels: Iterable[str]) -> float:
    """Compute the column width in inches at which labels do not overlap."""
    longest = max((len(line) for text in labels for line in text.split("\n")), default=0)
    return max(1.1, 0.2 + 0.085 * longest)


def _success(score: Score | None) -> float:
    return float("nan") if score is None else score.success


def _text(score: Score | None) -> str:
    if score is None:
        return "not measured"
    return f"{100 * score.success:.1f}%\n{100 * score.low:.0f} to {100 * score.high:.0f}"
