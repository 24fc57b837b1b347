"""A difference of success as a horizontal interval; filled where it is told apart from none."""

from typing import TYPE_CHECKING

from starpo.ragen.core.pictures import draw_interval
from starpo.ragen.studies.scores import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALPHA = 0.05
FILLED = f"filled: p < {ALPHA} after Holm's correction"
"""What a filled dot means, for the note of a figure."""


def draw_difference(axes: "Axes", place: float, difference: Comparison, colour: str) -> None:
    """Draw a difference with its interval, at a height of an axis of `points_axis`."""
    ends = difference.low, difference.high
    draw_interval(axes, place, difference.mean, ends, colour, is_filled=difference.adjusted_p_value < ALPHA)
