"""Does a metric end higher or lower than it began, seed by seed?"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from starpo.ragen.evidence.diagnostics.series import Series
from starpo.ragen.studies.ablation.figures.figure import Verdicts
from starpo.ragen.studies.ablation.result import AblationResult, CellResult
from starpo.ragen.studies.result import Table


class Trend(NamedTuple):
    """Means over the first and the last tenth of a run's points, at least one of each."""

    first: float
    last: float

    @property
    def change(self) -> float:
        """As a share of the first; 0 where that is 0."""
        return self.last / self.first - 1 if self.first else 0.0


def trends(cell: CellResult, metric: str) -> dict[int, Trend]:
    """Seed -> how a metric went; of runs with two points at least."""
    series = {seed: of_run.get(metric, {}) for seed, of_run in cell.series.items()}
    return {seed: _trend(points) for seed, points in series.items() if len(points) > 1}


def trend_table(
    result: AblationResult, metric: str, title: str, digits: int, by_seed: str, told: Callable[[Trend], str]
) -> Table:
    """A row a cell: a metric in the first and the last tenth of training, as a mean over seeds, and in every seed.

    Args:
        result: What was measured.
        metric: Its name.
        title: Of the table.
        digits: Behind the point.
        by_seed: Name of the column that has every seed.
        told: A seed's trend in that column.
    """
    rows = []
    for cell in result.cells:
        found = list(trends(cell, metric).values())
        row = {"cell": cell.label, "first tenth": "", "last tenth": "", by_seed: "not measured"}
        if found:
            mean = mean_trend(found)
            row |= {"first tenth": f"{mean.first:.{digits}f}", "last tenth": f"{mean.last:.{digits}f}"}
            row[by_seed] = " ".join(map(told, found))
        rows.append(row)
    return Table(title, rows, ("cell", by_seed))


def shrinking_verdicts(result: AblationResult, metric: str, what: str) -> Verdicts:
    """Does a metric become smaller, cell by cell?"""
    return {f"{what} in {cell.label}": judge_shrinking(list(trends(cell, metric).values())) for cell in result.cells}


def judge_shrinking(found: Sequence[Trend]) -> str:
    """Is it smaller at the end, in every seed?"""
    if not found:
        return "not measured"
    num = sum(trend.last < trend.first for trend in found)
    said = f"smaller at the end in {num} of {len(found)} seeds"
    if num == len(found):
        return f"shows: {said}"
    is_opposite = all(trend.last > trend.first for trend in found)
    return f"the opposite shows: {said}" if is_opposite else f"does not show: {said}"


def mean_trend(found: Sequence[Trend]) -> Trend:
    """The mean over seeds; at least one."""
    first, last = (math.fsum(side) / len(found) for side in zip(*found, strict=True))
    return Trend(first, last)


def _trend(points: Series) -> Trend:
    values = list(points.values())
    reach = max(1, len(values) // 10)
    return Trend(math.fsum(values[:reach]) / reach, math.fsum(values[-reach:]) / reach)
