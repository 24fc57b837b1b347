"""Monitoring of a run as it trains: the verdict after every iteration, from the metrics so far.

metrics of an iteration --observe--> series -> verdict            settings, verdict --is_due--> whether to act
"""

import math
from collections.abc import Mapping

from starpo.ragen.config.diagnostics import DiagnosticsConfig
from starpo.ragen.learning.control.collapse import SUCCESS, WATCHED, RunVerdict, Status, diagnose
from starpo.ragen.learning.control.smoothing import exponential_moving_average
from starpo.ragen.learning.control.thresholds import CollapseThresholds
from starpo.ragen.learning.metrics.table import Series

_DECAY = CollapseThresholds().decay
_BADNESS: tuple[Status, ...] = ("healthy", "warning", "stalled", "collapsing", "collapsed")


class Alarm:
    """Keeps the metrics of a run so far and judges them."""

    def __init__(self) -> None:
        self._series: dict[str, Series] = {name: {} for name in WATCHED}
        self._verdicts: dict[int, Status] = {}

    def observe(self, iteration: int, metrics: Mapping[str, float]) -> RunVerdict:
        """Add the metrics of an iteration and return the verdict on the run so far.

        Args:
            iteration: Number of updates done before it.
            metrics: Metrics of the iteration; those absent count as not measured.
        """
        for name, series in self._series.items():
            if name in metrics:
                series[iteration] = metrics[name]
        verdict = diagnose(self._series)
        self._verdicts[iteration] = verdict.status
        return verdict

    @property
    def healthy(self) -> int:
        """Iteration judged healthy that has the best smoothed training success; 0 if there is none.

        Verdicts lag by patience and smoothing, so performance may already be falling at the latest healthy iteration.
        Iteration 0 is no rollback target: a run restarted from scratch with other settings is another run.
        """
        known = self._series[SUCCESS]
        smoothed = dict(zip(known, exponential_moving_average(list(known.values()), _DECAY), strict=True))
        healthy = [iteration for iteration, status in self._verdicts.items() if iteration and status == "healthy"]
        return max(healthy, key=lambda iteration: (smoothed.get(iteration, -math.inf), iteration), default=0)

    @property
    def has_worsened(self) -> bool:
        """Whether the verdict is worse than after the previous iteration."""
        *before, now = [_BADNESS.index(status) for status in self._verdicts.values()]
        return now > (before[-1] if before else 0)


def is_due(config: DiagnosticsConfig, verdict: RunVerdict) -> bool:
    """Whether the settings require a reaction to this verdict."""
    return config.on_collapse != "log" and _BADNESS.index(verdict.status) >= _BADNESS.index(config.alarm)
