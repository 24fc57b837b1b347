"""One picture of several runs: success on the fixed panel over updates, with the 95% intervals, as an SVG.

Runs of one preset share a colour, so that seeds read as one family.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.templates import template

_COLOURS = ("#2b63c9", "#c2570c", "#0f8a6b", "#8b3fb0", "#b1890c", "#c0264b")
_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 736, 64, 340


@dataclass(frozen=True)
class Curve:
    """A run's evaluations.

    Attributes:
        run: Its name.
        family: What its colour stands for; the preset.
        points: (updates, success, low, high), in ascending order of updates.
    """

    run: str
    family: str
    points: Sequence[tuple[float, float, float, float]]


def draw_comparison(curves: Sequence[Curve], title: str) -> str:
    """Draw the curves.

    Args:
        curves: At least one, each with at least one point.
        title: Above the picture.

    Returns:
        An SVG document.

    Raises:
        ConfigError: If there is nothing to draw.
    """
    empty = [curve.run for curve in curves if not curve.points]
    if not curves or empty:
        raise ConfigError(f"nothing to draw: no evaluation in {', '.join(empty) or 'no run at all'}; see `ragen runs`")
    last = max(point[0] for curve in curves for point in curve.points) or 1.0
    families = list(dict.fromkeys(curve.family for curve in curves))
    colours = {family: _COLOURS[i % len(_COLOURS)] for i, family in enumerate(families)}

    def place(updates: float, success: float) -> str:
        return f"{_LEFT + updates / last * (_RIGHT - _LEFT):.1f},{_BOTTOM - success * (_BOTTOM - _TOP):.1f}"

    drawn = [
        {
            "run": curve.run,
            "colour": colours[curve.family],
            "line": " ".join(place(p[0], p[1]) for p in curve.points),
            "band": " ".join(
                [place(p[0], p[3]) for p in curve.points] + [place(p[0], p[2]) for p in curve.points[::-1]]
            ),
        }
        for curve in curves
    ]
    return template("starpo.ragen.evidence.report", "comparison.svg.j2").render(
        title=title,
        note="success on the fixed panel, a line a run; the band is the 95% interval",
        width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_RIGHT, bottom=_BOTTOM,
        y_ticks=[{"at": _BOTTOM - t / 4 * (_BOTTOM - _TOP), "label": f"{25 * t}%"} for t in range(5)],
        x_ticks=[{"at": _LEFT + t / 4 * (_RIGHT - _LEFT), "label": f"{last * t / 4:g}"} for t in range(5)],
        curves=drawn,
        legend=[{"at": _LEFT + 180 * i, "label": f, "colour": colours[f]} for i, f in enumerate(families)],
    )  # fmt: skip
