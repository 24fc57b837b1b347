"""A sweep as heat maps: success as colour and number, one square per score.

SweepResult -> draw_heat_maps -> SVGs
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from starpo.ragen.core.pictures import label, new_figure, style, svg
from starpo.ragen.studies.generalisation import entries
from starpo.ragen.studies.leaderboard import Score, SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DARK = 0.55
"""Success above which the text on a square is white."""
_FRAME = "#c2570c"


class _Square(NamedTuple):
    score: Score | None
    text: str
    is_framed: bool = False


_Squares = Mapping[tuple[str, str], _Square]
"""(row, column) -> square."""


def draw_heat_maps(result: SweepResult) -> dict[str, str]:
    """Return file -> drawing: all scores and, for a matrix sweep, generalisation."""
    matrix = {"generalisation.svg": draw_generalisation(result)} if result.sweep.is_matrix else {}
    return {"success.svg": draw_scores(result), **matrix}


def draw_scores(result: SweepResult) -> str:
    """Draw all scores with their intervals; grey if not measured.

    Rows are checkpoints, columns environments and temperatures; of a single checkpoint, rows are environments and
    columns temperatures.
    """
    runs = list(result.runs)
    scores = {(of.run, of.iteration, of.temperature): of.scores for of in result.leaderboard}
    policies = sorted({place[:2] for place in scores}, key=lambda policy: (runs.index(policy[0]), policy[1]))
    what = "by checkpoint, environment and temperature"
    if len(policies) == 1:
        what = f"of {policies[0][0]}, checkpoint {policies[0][1]}, by environment and temperature"
    squares = {}
    for policy in policies:
        for name in result.environments:
            for temperature in sorted({place[2] for place in scores}):
                row, column = f"{label(policy[0])}\ncheckpoint {policy[1]}", f"{label(name)}\nT = {temperature:g}"
                if len(policies) == 1:
                    row, column = label(name), f"T = {temperature:g}"
                score = scores.get((*policy, temperature), {}).get(name)
                squares[row, column] = _Square(score, _text(score))
    rows, columns = _axes_of(squares)
    seeds = len(result.sweep.seeds)
    note = f"success {what}; {seeds} seed{'s' * (seeds > 1)}; below each its 95% interval"
    with style():
        width, height = 3.2 + _column_width(columns) * len(columns), 1.9 + 0.5 * len(rows)
        figure = new_figure(max(7.6, width), height, f"Sweep {result.name}", note)
        axes = figure.subplots()
        _draw_squares(axes, squares, has_bar=True)
        axes.set_xticks([at + 0.5 for at in range(len(columns))], columns)
        axes.set_yticks([at + 0.5 for at in range(len(rows))], rows)
        _finish(axes)
        return svg(figure)


def draw_generalisation(result: SweepResult) -> str:
    """Draw one row per run and one column per panel, with a frame around the environment that a run trains on."""
    squares = {place: _Square(of.last, of.words, of.is_own) for place, of in entries(result).items()}
    runs, panels = _axes_of(squares)
    note = (
        "success in percent, first checkpoint \u2192 last; below, the "
        f"{result.confidence:.0%} interval of the last, which is the colour; framed: what the run trains on"
    )
    with style():
        labels = [label(panel, 24) for panel in panels]
        width, height = 4.2 + _column_width(labels) * len(panels), 1.9 + 0.55 * len(runs)
        figure = new_figure(max(7.6, width), height, f"Sweep {result.name}", note)
        axes = figure.subplots()
        _draw_squares(axes, squares)
        axes.set_xticks([at + 0.5 for at in range(len(panels))], labels)
        axes.set_yticks(
            [at + 0.5 for at in range(len(runs))], [f"{label(result.runs[run], 24)}\n{label(run, 48)}" for run in runs]
        )
        axes.set(xlabel="plays", ylabel="trains on")
        axes.xaxis.set_label_position("top")
        _finish(axes)
        return svg(figure)


def _axes_of(squares: _Squares) -> tuple[list[str], list[str]]:
    """Return the rows and the columns."""
    return list(dict.fromkeys(row for row, _ in squares)), list(dict.fromkeys(column for _, column in squares))


def _draw_squares(axes: "Axes", squares: _Squares, has_bar: bool = False) -> None:
    """Draw squares in the colour of their success, with their texts, and with a scale of the colours beside them."""
    rows, columns = _axes_of(squares)
    axes.set_facecolor("#e4e7ec")
    values = [[_success(squares[row, column].score) for column in columns] for row in rows]
    if values:
        mesh = axes.pcolormesh(values, cmap="Blues", vmin=0, vmax=1, edgecolors="white", linewidth=2)
        if has_bar:
            bar = axes.figure.colorbar(mesh, ax=axes, aspect=max(8, 4 * len(rows)), pad=0.02, ticks=[0, 0.5, 1])
            bar.ax.set_yticklabels(["0%", "50%", "100%"])
            bar.outline.set_visible(False)
    for (row, column), square in squares.items():
        x, y = columns.index(column), rows.index(row)
        ink = "white" if square.score and square.score.success > _DARK else "#1f2430"
        axes.text(x + 0.5, y + 0.5, square.text, ha="center", va="center", color=ink, fontsize=8)
        if square.is_framed:
            corners = [(x + 0.03, y + 0.05), (x + 0.97, y + 0.05), (x + 0.97, y + 0.95), (x + 0.03, y + 0.95)]
            axes.plot(*zip(*corners, corners[0], strict=True), color=_FRAME, linewidth=1.6, gid="own")


def _finish(axes: "Axes") -> None:
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.invert_yaxis()


def _column_width(labels: Iterable[str]) -> float:
    """Compute the column width in inches at which labels do not overlap."""
    longest = max((len(line) for text in labels for line in text.split("\n")), default=0)
    return max(1.1, 0.2 + 0.085 * longest)


def _success(score: Score | None) -> float:
    return float("nan") if score is None else score.success


def _text(score: Score | None) -> str:
    if score is None:
        return "not measured"
    return f"{100 * score.success:.1f}%\n{100 * score.low:.0f} to {100 * score.high:.0f}"
