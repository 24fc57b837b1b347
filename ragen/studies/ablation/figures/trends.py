"""Does a metric end higher or lower than it began, seed by seed?"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from starpo.ragen.evidence.diagnostics.series import Series
from starpo.ragen.studies.ablation.result import CellResult


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
