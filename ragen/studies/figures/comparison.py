"""Runs beside each other: success over updates with 95% intervals, and the difference from the first at the end.

Curve of every run -> draw_comparison -> SVG, PDF or PNG
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.pictures import COLOURS, label, new_figure, points_axis, rendered, style, success_axis
from starpo.ragen.studies.figures.differences import FILLED, draw_difference
from starpo.ragen.studies.scores import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("-", "--", ":", "-.")
"""Dashes of the first runs, of as many as there are colours, then of the next ones."""
_MAX_SETTINGS = 90
_LETTERS_AN_INCH = 12


@dataclass(frozen=True)
class Curve:
    """A run's evaluations.

    Attributes:
        run: Name of the run.
        points: (updates, success, low, high), in ascending order of updates.
        settings: Dotted path -> value of its settings that differ from those of another run.
        difference: Its last success minus that of the first run; None for the first, or without a measurement.
    """

    run: str
    points: Sequence[tuple[float, float, float, float]]
    settings: Mapping[str, str] = field(default_factory=dict)
    difference: Comparison | None = None

    @property
    def entry(self) -> str:
        """Its entry in the legend: the run, and what differs in its settings."""
        differing = ", ".join(f"{path} = {value}" for path, value in self.settings.items())
        return label(self.run) + (f"\n{label(differing, _MAX_SETTINGS)}" if differing else "")


def draw_comparison(curves: Sequence[Curve], title: str, form: str = "svg") -> bytes:
    """Draw the curves, one colour and one entry of the legend for each run; beside them, differences if there are any.

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
    has_differences = any(curve.difference for curve in curves)
    entries = [curve.entry for curve in curves]
    longest = max(len(line) for entry in entries for line in entry.splitlines())
    width = 11 if has_differences else 7.6
    num_columns = max(1, min(4, int(_LETTERS_AN_INCH * width) // longest))
    num_lines = -(-len(curves) // num_columns) * (1 + any("\n" in entry for entry in entries))
    note = "success on the fixed panel, one line per run; the band is the 95% interval"
    if has_differences:
        note += (
            f"; right: last success minus that of {curves[0].run}, in the order of the legend, with its 95% interval; "
            f"{FILLED}"
        )
    with style():
        figure = new_figure(width, 4.0 + 0.2 * num_lines, title, note)
        if has_differences:
            axes, forest = figure.subplots(1, 2, width_ratios=(1.6, 1))
            _draw_differences(forest, curves)
        else:
            axes = figure.subplots()
        success_axis(axes)
        lines = []
        for number, curve in enumerate(curves):
            colour, dashes = _look(number)
            updates, success, low, high = zip(*curve.points, strict=True)
            axes.fill_between(updates, low, high, color=colour, alpha=0.12, linewidth=0)
            lines += axes.plot(
                updates, success, color=colour, linestyle=dashes, linewidth=1.6, marker="o", markersize=2.5, gid="curve"
            )
        axes.set_xlim(left=0)
        legend = figure.legend(lines, [""] * len(lines), loc="outside lower left", ncols=num_columns)
        # Labels are set afterwards, since one that begins with _ would be left out.
        for text, entry in zip(legend.get_texts(), entries, strict=True):
            text.set_text(entry)
        return rendered(figure, form)


def _look(number: int) -> tuple[str, str]:
    """Return colour and dashes of a run."""
    dashes, colour = divmod(number, len(COLOURS))
    return COLOURS[colour], _DASHES[dashes % len(_DASHES)]


def _draw_differences(axes: "Axes", curves: Sequence[Curve]) -> None:
    """Draw a row for each run, in the order and the colours of the legend."""
    points_axis(axes)
    for place, curve in enumerate(curves):
        if curve.difference:
            draw_difference(axes, place, curve.difference, _look(place)[0])
    axes.set(ylim=(len(curves) - 0.4, -0.6), yticks=[])
