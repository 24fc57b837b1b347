"""Gateway to figures: matplotlib figures as SVG, PDF or PNG, byte-for-byte reproducible, with untrusted text as plain
text."""

import io
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starpo.ragen.core.visible import shortened, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LABEL = 60
"""Maximum characters of a name in a figure."""
COLOURS = ("#2b63c9", "#c2570c", "#0f8a6b", "#8b3fb0", "#b1890c", "#c0264b", "#1797a6", "#7a5230", "#5b6472")
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": "#d0d5dd",
    "axes.labelcolor": "#5b6472",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": "#eceff3",
    "legend.frameon": False,
    "pdf.fonttype": 42,  # whole outlines, which journals ask for
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "starpo",
    "text.parse_math": False,
    "xtick.color": "#5b6472",
    "ytick.color": "#5b6472",
}


@contextmanager
def style() -> Iterator[None]:
    """Apply the common style; must enclose all drawing, `svg` included."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float, title: str, note: str) -> "Figure":
    """Create an empty figure with a heading.

    Args:
        width: In inches.
        height: In inches.
        title: Title.
        note: Description, drawn below the title.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    lines = textwrap.wrap(label(note, 400), int(14.5 * width))
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - (0.38 + 0.17 * len(lines)) / height))  # type: ignore[union-attr, call-arg]
    top = {"va": "top", "ha": "left", "x": 0.12 / width}
    figure.text(y=1 - 0.1 / height, s=label(title), fontsize=12, fontweight="bold", **top)  # type: ignore[arg-type]
    figure.text(y=1 - 0.34 / height, s="\n".join(lines), color="#5b6472", **top)  # type: ignore[arg-type]
    return figure


def success_axis(axes: "Axes") -> None:
    """Set up axes with updates on x and success from 0 to 100% on y."""
    updates_axis(axes)
    axes.set(ylim=(0, 1), yticks=[0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")


def updates_axis(axes: "Axes") -> None:
    """Set up an x axis of updates."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="updates")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.grid(axis="y")


def draw_interval(
    axes: "Axes", place: float, mean: float, ends: tuple[float, float], colour: str, *, is_filled: bool = True
) -> None:
    """Draw a horizontal interval with a dot at its mean.

    Args:
        axes: Where to.
        place: Height.
        mean: Position of the dot.
        ends: Ends of the interval.
        colour: Colour of both.
        is_filled: Whether the dot is filled.
    """
    axes.plot(ends, [place] * 2, color=colour, linewidth=1.5, gid="interval")
    axes.plot(mean, place, "o", color=colour, markerfacecolor=colour if is_filled else "white", markersize=5)


def points_axis(axes: "Axes") -> None:
    """Set up an x axis of differences of success, in points, with a line at 0."""
    axes.axvline(0, color="#98a2b3", linewidth=0.8)
    axes.set(xlabel="points of success")
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:+.3g}" if abs(value) > 1e-9 else "0")
    axes.grid(axis="x")


def label(text: str, limit: int = MAX_LABEL) -> str:
    """Make a name safe to draw: on one line, truncated, without invisible characters."""
    return shortened(" ".join(visible(text, lambda _: "").split()), limit)


def rendered(figure: "Figure", form: str) -> bytes:
    """Render a figure as a file.

    Args:
        figure: The figure.
        form: 'svg', 'pdf', or 'png' with 200 pixels an inch.
    """
    if form == "svg":
        return svg(figure).encode()
    stream = io.BytesIO()
    metadata = {"CreationDate": None, "Creator": None, "Producer": None} if form == "pdf" else {"Software": None}
    figure.savefig(stream, format=form, metadata=metadata, dpi=200)
    return stream.getvalue()


def svg(figure: "Figure") -> str:
    """Render a figure as an SVG document."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()[stream.getvalue().index("<svg") :]
