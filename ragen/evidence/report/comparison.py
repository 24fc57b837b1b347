"""Chart of several runs: success on the fixed panel over updates, with 95% intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.pictures import COLOURS, label, new_figure, rendered, style, success_axis

_DASHES = ("-", "--", ":", "-.")
"""Dashes of the first runs, of as many as there are colours, then of the next ones."""


@dataclass(frozen=True)
class Curve:
    """A run's evaluations.

    Attributes:
        run: Name of the run.
        points: (updates, success, low, high), in ascending order of updates.
    """

    run: str
    points: Sequence[tuple[float, float, float, float]]


def draw_comparison(curves: Sequence[Curve], title: str, form: str = "svg") -> bytes:
    """Draw the curves, one colour and one entry of the legend for each run.

    Args:
        curves: At least one, each with at least one point.
        title: Title above the chart.
        form: 'svg', 'pdf' or 'png'.

    Raises:
        ConfigError: If there is nothing to draw.
    """
    empty = [curve.run for curve in curves if not curve.points]
    if not curves or empty:
        raise ConfigError(f"nothing to draw: no evaluation in {', '.join(empty) or 'any run'}; see `starpo runs`")
    num_columns = 2 if max(len(label(curve.run)) for curve in curves) > 20 else 4
    num_rows = -(-len(curves) // num_columns)
    note = "success on the fixed panel, one line per run; the band is the 95% interval"
    with style():
        figure = new_figure(7.6, 4.0 + 0.2 * num_rows, title, note)
        axes = figure.subplots()
        success_axis(axes)
        lines = []
        for number, curve in enumerate(curves):
            dashes, colour = divmod(number, len(COLOURS))
            shown = COLOURS[colour], _DASHES[dashes % len(_DASHES)]
            updates, success, low, high = zip(*curve.points, strict=True)
            axes.fill_between(updates, low, high, color=shown[0], alpha=0.12, linewidth=0)
            lines += axes.plot(
                updates,
                success,
                color=shown[0],
                linestyle=shown[1],
                linewidth=1.6,
                marker="o",
                markersize=2.5,
                gid="curve",
            )
        axes.set_xlim(left=0)
        legend = figure.legend(lines, [""] * len(lines), loc="outside lower left", ncols=num_columns)
        # Labels are set afterwards, since one that begins with _ would be left out.
        for entry, curve in zip(legend.get_texts(), curves, strict=True):
            entry.set_text(label(curve.run))
        return rendered(figure, form)
