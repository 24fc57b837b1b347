"""Comparison of objectives on one rollout, as metrics.

MeasuredObjectives -> metrics `objectives/<name>/...` -> Compared
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from starpo.ragen.learning.learners.measuring import MeasuredObjectives

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
"""Valid names of an objective."""
_METRIC = re.compile(rf"objectives/({NAME.pattern})/(.+)")
_COSINE = "cosine/"


@dataclass(frozen=True)
class Compared:
    """Measurements of several objectives at one iteration.

    Attributes:
        values: Objective -> metric -> value (`objective_metrics`); undefined values are absent.
        cosines: Objective -> objective -> cosine of their gradients; absent if one of them is 0.
    """

    values: dict[str, dict[str, float]]
    cosines: dict[str, dict[str, float]]


def objective_metrics(names: Sequence[str], measured: MeasuredObjectives) -> dict[str, float]:
    """Convert measurements to metrics.

    For every objective: `norm` of its gradient; `num_groups` with a gradient; `signal_to_noise`, squared norm of the
    expected gradient over the variance of one group's gradient, estimated without bias, so it may be negative;
    `cosine/<other>` to every objective.

    Args:
        names: Names of the objectives.
        measured: Measurements in the same order.

    Returns:
        Names, each prefixed with `objectives/<objective>/`, and values. Undefined values are absent.
    """
    values: dict[str, float] = {}
    cosines = measured.cosines
    for place, (name, groups) in enumerate(zip(names, measured.groups, strict=True)):
        measures: dict[str, float] = {"norm": groups.norm, "num_groups": groups.num}
        measures |= {"signal_to_noise": groups.signal / groups.noise} if groups.noise > 0 else {}
        measures |= {f"{_COSINE}{other}": float(cosines[place, column]) for column, other in enumerate(names)}
        values |= {f"objectives/{name}/{key}": value for key, value in measures.items() if np.isfinite(value)}
    return values


def compared(values: Mapping[str, float], names: Sequence[str]) -> Compared:
    """Extract the measurements of these objectives from metrics, in this order."""
    measures: dict[str, dict[str, float]] = {name: {} for name in names}
    cosines: dict[str, dict[str, float]] = {name: {} for name in names}
    for name, value in values.items():
        match = _METRIC.fullmatch(name)
        if match is None or match[1] not in measures:
            continue
        if match[2].startswith(_COSINE):
            cosines[match[1]][match[2].removeprefix(_COSINE)] = value
        else:
            measures[match[1]][match[2]] = value
    ordered = {one: {other: row[other] for other in names if other in row} for one, row in cosines.items()}
    return Compared(measures, ordered)
