"""Comparison of objectives on one rollout, as metrics and as a chart.

MeasuredObjectives -> metrics `objectives/<name>/...` -> Compared -> heat map of cosines
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from starpo.ragen.core.pictures import label, new_figure, style, svg
from starpo.ragen.learning.learners.measured_objectives import MeasuredObjectives, Signs

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
"""Valid names of an objective."""
_METRIC = re.compile(rf"objectives/({NAME.pattern})/(.+)")
_COSINE = "cosine/"
_TURN = re.compile(r"turn_(\d+)/(.+)")
_MAX_WRITTEN = 16
"""Maximum number of objectives for which cosines are written into the cells."""


@dataclass(frozen=True)
class Compared:
    """Measurements of several objectives at one iteration.

    Attributes:
        values: Objective -> metric -> value (`objective_metrics`); undefined values are absent.
        cosines: Objective -> objective -> cosine of their gradients; absent if one of them is 0.
    """

    values: dict[str, dict[str, float]]
    cosines: dict[str, dict[str, float]]

    def by_turn(self, name: str, number: str) -> list[float | None]:
        """Return a metric such as 'share' for every turn of an objective; None for turns without a value."""
        parts = ((_TURN.fullmatch(key), value) for key, value in self.values[name].items())
        found = {int(match[1]): value for match, value in parts if match and match[2] == number}
        return [found.get(turn) for turn in range(max(found, default=-1) + 1)]


def objective_metrics(names: Sequence[str], measured: MeasuredObjectives) -> dict[str, float]:
    """Convert measurements to metrics.

    For every objective: `norm` of its gradient g; `num_groups` with a gradient; `signal_to_noise`, squared norm of the
    expected gradient over the variance of one group's gradient, estimated without bias, so it may be negative; for
    every turn, `turn_k/norm` of the part g_k contributed by its tokens and `turn_k/share`, `<g_k, g> / |g|^2`; for
    every turn and for think, answer and format tokens, `num_tokens` with a loss, and `positive` and `negative`, the
    shares of them with an advantage of that sign; `cosine/<other>` to every objective.

    Args:
        names: Names of the objectives.
        measured: Measurements in the same order.

    Returns:
        Names, each prefixed with `objectives/<objective>/`, and values. Undefined values are absent.
    """
    values: dict[str, float] = {}
    cosines = measured.cosines
    for place, (name, one) in enumerate(zip(names, measured.objectives, strict=True)):
        own: dict[str, float] = {"norm": one.groups.norm, "num_groups": one.groups.num}
        own |= {"signal_to_noise": one.groups.signal / one.groups.noise} if one.groups.noise > 0 else {}
        for turn, (norm, signs) in enumerate(zip(one.turn_norms, one.turn_signs, strict=True)):
            own[f"turn_{turn}/norm"] = norm
            own |= {f"turn_{turn}/share": one.turn_shares[turn]} if one.turn_shares else {}
            own |= _signs(f"turn_{turn}", signs)
        for kind, signs in one.kind_signs.items():
            own |= _signs(kind, signs)
        own |= {f"{_COSINE}{other}": float(cosines[place, column]) for column, other in enumerate(names)}
        values |= {f"objectives/{name}/{key}": value for key, value in own.items() if np.isfinite(value)}
    return values


def compared(values: Mapping[str, float], names: Sequence[str]) -> Compared:
    """Extract the measurements of these objectives from metrics, in this order."""
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    cosines: dict[str, dict[str, float]] = {name: {} for name in names}
    for name, value in values.items():
        match = _METRIC.fullmatch(name)
        if match is None or match[1] not in found:
            continue
        if match[2].startswith(_COSINE):
            cosines[match[1]][match[2].removeprefix(_COSINE)] = value
        else:
            found[match[1]][match[2]] = value
    ordered = {one: {other: own[other] for other in names if other in own} for one, own in cosines.items()}
    return Compared(found, ordered)


def draw_cosines(found: Compared, title: str) -> str:
    """Draw the cosines of all pairs of gradients as a heat map, as SVG; white where a gradient is 0."""
    names = list(found.values)
    cosines = np.array([[found.cosines[one].get(other, np.nan) for other in names] for one in names])
    size = 1.6 + 0.42 * len(names)
    with style():
        note = "Cosine of the two gradients: green where they agree, brown where they pull against each other."
        figure = new_figure(max(4.6, size + 0.6), size + 0.9, title, note)
        axes = figure.subplots()
        axes.pcolormesh(cosines, cmap="BrBG", vmin=-1, vmax=1, edgecolors="white", linewidth=0.5)
        ticks = np.arange(len(names)) + 0.5
        axes.set_xticks(ticks, [label(name) for name in names], rotation=90)
        axes.set_yticks(ticks, [label(name) for name in names])
        axes.invert_yaxis()
        axes.tick_params(length=0)
        for (row, column), cosine in np.ndenumerate(cosines):
            if len(names) <= _MAX_WRITTEN and np.isfinite(cosine):
                colour = "white" if abs(cosine) > 0.7 else "black"
                place = {"ha": "center", "va": "center", "fontsize": 7, "color": colour}
                axes.text(column + 0.5, row + 0.5, f"{cosine:.2f}", **place)  # type: ignore[arg-type]
        for spine in axes.spines.values():
            spine.set_visible(False)
        return svg(figure)


def _signs(name: str, signs: Signs) -> dict[str, float]:
    found: dict[str, float] = {f"{name}/num_tokens": signs.num_tokens}
    if signs.num_tokens:
        found |= {f"{name}/positive": signs.positive, f"{name}/negative": signs.negative}
    return found
