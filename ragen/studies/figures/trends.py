"""Metrics early and late in training: whether reasoning becomes shorter (RAGEN, Fig. 11), and responses more alike
(RAGEN, Table 1).

AblationResult -> trends of every run -> table, verdicts
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.studies.ablation import AblationResult, CellResult
from starpo.ragen.studies.figures.figure import Figure, Verdicts
from starpo.ragen.studies.result import Table

_LENGTH = "rollout/reasoning_characters_mean"
_DISTINCT = "rollout/distinct_response_share"


class Trend(NamedTuple):
    """Means over the first and the last tenth of a run's points, at least one point each.

    Attributes:
        first: Mean of the first tenth.
        last: Mean of the last tenth.
        until: The last iteration with a point, if the run continued without any, as when it has lost its reasoning;
            otherwise None.
    """

    first: float
    last: float
    until: int | None = None

    @property
    def change(self) -> float:
        """Relative change from first to last; 0 if first is 0."""
        return self.last / self.first - 1 if self.first else 0.0


def trends(cell: CellResult, metric: str) -> list[Trend]:
    """Return the trends of a metric, for runs with at least two points."""
    found = []
    for of_run in cell.series.values():
        points = of_run.get(metric, {})
        if len(points) > 1:
            end = max(max(other) for other in of_run.values() if other)
            found.append(_trend(points, end))
    return found


def length_tables(result: AblationResult) -> list[Table]:
    """Return the length at the beginning and at the end, and its change per seed, with the last iteration that had any
    reasoning if later ones had none."""
    title = "characters of reasoning per response that has any, in training"
    return [trend_table(result, _LENGTH, title, 1, "change by seed", lambda trend: f"{trend.change:+.0%}")]


def response_tables(result: AblationResult) -> list[Table]:
    """Return the share of distinct responses, early and late in training."""
    title = "share of different responses, in training"
    return [trend_table(result, _DISTINCT, title, 3, "by seed", lambda trend: f"{trend.first:.3f}->{trend.last:.3f}")]


def trend_table(
    result: AblationResult, metric: str, title: str, digits: int, by_seed: str, told: Callable[[Trend], str]
) -> Table:
    """Return one row per cell: a metric in the first and the last tenth of its points, averaged over seeds and by seed.

    Args:
        result: The result.
        metric: Name of the metric.
        title: Title of the table.
        digits: Decimal places.
        by_seed: Name of the column that lists every seed.
        told: Formats a seed's trend for that column.
    """
    rows = []
    for cell in result.cells:
        found = trends(cell, metric)
        row = {"cell": cell.label, "first tenth": "", "last tenth": "", by_seed: "not measured"}
        if found:
            first, last = (math.fsum(side) / len(found) for side in zip(*(trend[:2] for trend in found), strict=True))
            row |= {"first tenth": f"{first:.{digits}f}", "last tenth": f"{last:.{digits}f}"}
            row[by_seed] = " ".join(told(t) + ("" if t.until is None else f" (until {t.until})") for t in found)
        rows.append(row)
    return Table(title, rows, ("cell", by_seed))


def shrinking_verdicts(result: AblationResult, metric: str, what: str) -> Verdicts:
    """Judge for each cell whether a metric decreases."""
    return {f"{what} in {cell.label}": judge_shrinking(trends(cell, metric)) for cell in result.cells}


def judge_shrinking(found: Sequence[Trend]) -> str:
    """Judge whether a metric is smaller at the end in every seed."""
    if not found:
        return "not measured"
    num = sum(trend.last < trend.first for trend in found)
    said = f"smaller at the end in {num} of {len(found)} seeds"
    if num == len(found):
        return f"shows: {said}"
    is_opposite = all(trend.last > trend.first for trend in found)
    return f"the opposite shows: {said}" if is_opposite else f"does not show: {said}"


def _trend(points: Series, end: int) -> Trend:
    values, until = list(points.values()), max(points)
    reach = max(1, len(values) // 10)
    first, last = (math.fsum(part) / reach for part in (values[:reach], values[-reach:]))
    return Trend(first, last, until if until < end else None)


LENGTH = Figure(
    stages=("diagnose",), metrics=(_LENGTH,), tables=length_tables,
    verdicts=lambda result: shrinking_verdicts(result, _LENGTH, "shorter reasoning"),
)  # fmt: skip
RESPONSES = Figure(
    stages=("diagnose",), metrics=(_DISTINCT,), tables=response_tables,
    verdicts=lambda result: shrinking_verdicts(result, _DISTINCT, "responses growing alike"),
)  # fmt: skip
