"""Chart of several runs: success on the fixed panel over updates, with 95% intervals, as SVG.

Runs of one preset share a colour, so that seeds are recognisable as one family.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.pictures import COLOURS, label, new_figure, style, success_axis, svg


@dataclass(frozen=True)
class Curve:
    """A run's evaluations.

    Attributes:
        run: Name of the run.
        family: Group of runs that share a colour; the preset.
        points: (updates, success, low, high), in ascending order of updates.
    """

    run: str
    family: str
    points: Sequence[tuple[float, float, float, float]]


def draw_comparison(curves: Sequence[Curve], title: str) -> str:
    """Draw the curves.

    Args:
        curves: At least one, each with at least one point.
        title: Title above the chart.

    Returns:
        An SVG document.

    Raises:
        ConfigError: If there is nothing to draw.
    """
    empty = [curve.run for curve in curves if not curve.points]
    if not curves or empty:
        raise ConfigError(f"nothing to draw: no evaluation in {', '.join(empty) or 'any run'}; see `ragen runs`")
    families = list(dict.fromkeys(curve.family for curve in curves))
    note = "success on the fixed panel, one line per run; the band is the 95% interval"
    with style():
        figure = new_figure(7.6, 4.2, title, note)
        axes = figure.subplots()
        success_axis(axes)
        lines = {}
        for curve in curves:
            colour = COLOURS[families.index(curve.family) % len(COLOURS)]
            updates, success, low, high = zip(*curve.points, strict=True)
            axes.fill_between(updates, low, high, color=colour, alpha=0.12, linewidth=0)
            (line,) = axes.plot(updates, success, color=colour, linewidth=1.6, marker="o", markersize=2.5, gid="curve")
            lines[curve.family] = line
        axes.set_xlim(left=0)
        legend = figure.legend(list(lines.values()), [""] * len(lines), loc="outside lower left", ncols=4)
        for entry, family in zip(
            legend.get_texts(), lines, strict=True
        ):  # a label that begins with _ would be left out
            entry.set_text(label(family))
        return svg(figure)
