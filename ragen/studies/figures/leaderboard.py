"""An evaluation: success of every checkpoint on every panel, and its difference from the first, each with its interval.

SweepResult -> draw_leaderboard -> SVG, PDF or PNG
"""

from starpo.ragen.core.pictures import COLOURS, draw_interval, label, new_figure, points_axis, rendered, style
from starpo.ragen.studies.figures.differences import FILLED, draw_difference
from starpo.ragen.studies.leaderboard import SweepResult

MAX_ROWS = 60
"""Number of standings that are drawn, best first."""


def draw_leaderboard(result: SweepResult, form: str = "svg") -> bytes:
    """Draw a result: a row for each standing, best on top, and a colour for each panel.

    Args:
        result: With at least one score.
        form: 'svg', 'pdf' or 'png'.
    """
    measured = [standing for standing in result.leaderboard if standing.scores]
    rows, panels = measured[:MAX_ROWS], result.environments
    kept = "" if len(rows) == len(measured) else f"; the best {len(rows)} of {len(measured)}"
    note = (
        f"left: success; right: success minus that of the first, on the same states; {result.confidence:.0%} intervals "
        f"over initial states; {FILLED} for all pairs{kept}"
    )
    step = 0.8 / len(panels)
    with style():
        # at least a quarter of an inch for a row, and an eighth for each of its panels
        height = 1.7 + len(rows) * max(0.26, 0.13 * len(panels)) + 0.2 * (len(panels) > 1) * -(-len(panels) // 4)
        figure = new_figure(9.5, max(2.6, height), f"Evaluation {result.name}", note)
        left, right = figure.subplots(1, 2, sharey=True)
        points_axis(right)
        for place, standing in enumerate(rows):
            for number, panel in enumerate(panels):
                if not (score := standing.scores.get(panel)):
                    continue
                at, colour = place + step * (number - (len(panels) - 1) / 2), COLOURS[number % len(COLOURS)]
                draw_interval(left, at, score.success, (score.low, score.high), colour)
                if change := score.difference:
                    draw_difference(right, at, change, colour)
        left.set(xlim=(-0.02, 1.02), ylim=(len(rows) - 0.4, -0.6), xlabel="success")
        left.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        left.grid(axis="x")
        left.set_yticks(range(len(rows)), [label(result.label(standing.line), 40) for standing in rows])
        for axes in (left, right):
            axes.tick_params(axis="y", length=0)
        if len(panels) > 1:
            marks = [left.plot([], [], "o", color=COLOURS[n % len(COLOURS)])[0] for n in range(len(panels))]
            legend = figure.legend(marks, [""] * len(marks), loc="outside lower left", ncols=4)
            # labels are set afterwards, since one that begins with _ would be left out
            for entry, panel in zip(legend.get_texts(), panels, strict=True):
                entry.set_text(label(panel))
        return rendered(figure, form)
