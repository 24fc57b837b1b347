"""RAGEN-2's plane: a run as a path over diversity of its reasoning, H(Z|X), and its input dependence, I(X; Z).

metric series -> path -> draw_plane -> SVG
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from typing import Literal

from starpo.ragen.core.pictures import COLOURS, new_figure, style, svg
from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.learning.metrics.template import Regime, regime

_ROWS = "reasoning/first_turn/token"
_CORNERS: tuple[tuple[Regime, float, float, str, str], ...] = (
    ("template", 0.01, 0.98, "left", "varied, the same for every prompt"),
    ("diverse", 0.99, 0.98, "right", "varied, and fits its prompt"),
    ("collapsed", 0.01, 0.02, "left", "one reasoning for all"),
    ("specialised", 0.99, 0.02, "right", "one reasoning for each prompt"),
)
_MEANINGS: dict[str, str] = {
    "baseline": "what later probes are compared with",
    "unclear": "neither its I(X; Z) nor that of the first probe is above chance",
    **{name: meaning for name, *_, meaning in _CORNERS},
}
_ABOVE_CHANCE = 2.0
"""Standard errors from which I(X; Z) counts as above chance. Probes of policies that ignore the prompt had at most 0.4,
those of policies that do not at least 8."""


@dataclass(frozen=True)
class Point:
    """A probe of a run.

    Attributes:
        iteration: Number of updates done before.
        diversity: H(Z|X) of first turns, nats per token.
        dependence: I(X; Z) of first turns, nats per token.
        standard_errors: `dependence` in standard errors: its z-score times the root of the number of reasonings.
        retrieval: Share of reasonings that are likeliest under their own prompt, minus chance.
        regime: Regime relative to the run's first probe, which is the baseline. 'unclear' if neither of them has a
            dependence above chance.
    """

    iteration: int
    diversity: float
    dependence: float
    standard_errors: float
    retrieval: float
    regime: Regime | Literal["baseline", "unclear"]

    @property
    def words(self) -> str:
        """The regime as text, with its iteration, as later probes may have found no reasoning to score."""
        return f"at iteration {self.iteration}: {self.regime}, {_MEANINGS[self.regime]}"


def path(series: Mapping[str, Series]) -> list[Point]:
    """Return the probes of a run, in order; empty if none found reasoning to score.

    Args:
        series: Metric name -> iteration -> value.
    """
    diversity, dependence, z, bound, retrieval = (
        series.get(f"{_ROWS}/{name}", {})
        for name in (
            "conditional_entropy",
            "mutual_information",
            "mutual_information_z",
            "mutual_information_bound",
            "retrieval_at_1_above_chance",
        )
    )
    points: list[Point] = []
    first: tuple[float, float] | None = None
    for iteration in sorted(diversity.keys() & dependence.keys() & z.keys() & bound.keys()):
        errors = z[iteration] * sqrt(exp(bound[iteration]))  # the bound is the logarithm of the number
        here = diversity[iteration], dependence[iteration] if errors >= _ABOVE_CHANCE else 0.0
        name = "baseline" if first is None else _regime(here, first)
        first = first or here
        points.append(
            Point(iteration, diversity[iteration], dependence[iteration], errors, retrieval.get(iteration, 0.0), name)
        )
    return points


def _regime(here: tuple[float, float], first: tuple[float, float]) -> Regime | Literal["unclear"]:
    """Return the regime of a probe beside the first one; of each, diversity and dependence, 0 if not above chance."""
    if here[1] == first[1] == 0:
        return "unclear"
    return regime(*(value / start if start > 0 else 1.0 for value, start in zip(here, first, strict=True)))


def draw_plane(run: str, points: Sequence[Point]) -> str:
    """Draw the path as an SVG document.

    Args:
        run: Name of the run.
        points: At least one.
    """
    with style():
        has_regimes = any(point.regime not in ("baseline", "unclear") for point in points)
        note = "Probes of the reasoning of first turns; numbers are iterations done."
        note += " Dashed: half of the first probe." if has_regimes else ""
        figure = new_figure(6.4, 4.6, f"Reasoning of {run}", note)
        axes = figure.add_subplot()
        first, top = points[0], max(point.diversity for point in points)
        right = max(point.dependence for point in points)
        axes.set(
            xlabel="dependence on the prompt, I(X; Z), nats per token",
            ylabel="diversity, H(Z|X), nats per token",
            xlim=(min(0.0, *(point.dependence for point in points)), 1.15 * max(right, 1e-3)),
            ylim=(-0.15 * max(top, 1e-3), 1.25 * max(top, 1e-3)),
        )
        if has_regimes:
            axes.axvline(0.5 * first.dependence, color="#d0d5dd", linestyle="--")
            axes.axhline(0.5 * first.diversity, color="#d0d5dd", linestyle="--")
        for name, x, y, side, meaning in _CORNERS if has_regimes else ():
            place = {"ha": side, "va": "top" if y > 0.5 else "bottom", "transform": axes.transAxes}
            axes.text(x, y, f"{name}\n{meaning}", color="#8a94a3", fontsize=8, **place)  # type: ignore[arg-type]
        xs, ys = [point.dependence for point in points], [point.diversity for point in points]
        axes.plot(xs, ys, color=COLOURS[0], marker="o", markersize=4, linewidth=1.2)
        marked = {0, len(points) - 1, *range(0, len(points), max(1, len(points) // 6))}
        for number in sorted(marked):
            axes.annotate(
                str(points[number].iteration), (xs[number], ys[number]), xytext=(5, 5), textcoords="offset points"
            )
        return svg(figure)
