"""Watching a run as it trains: the verdict after every iteration, from that iteration's metrics and those before.

metrics of an iteration --observe--> series -> verdict            settings, verdict -> is it time to act?
"""

import math
from collections.abc import Mapping

from starpo.ragen.config.diagnostics import DiagnosticsConfig
from starpo.ragen.evidence.diagnostics.collapse import SUCCESS, WATCHED, Status, Verdict, diagnose
from starpo.ragen.evidence.diagnostics.series import Series
from starpo.ragen.evidence.diagnostics.smoothing import exponential_moving_average
from starpo.ragen.evidence.diagnostics.thresholds import CollapseThresholds

_DECAY = CollapseThresholds().decay
_BADNESS: tuple[Status, ...] = ("healthy", "warning", "collapsing", "collapsed")


class Alarm:
    """The verdict on a run so far."""

    def __init__(self) -> None:
        self._series: dict[str, Series] = {name: {} for name in WATCHED}
        self._verdicts: dict[int, Status] = {}

    def observe(self, iteration: int, metrics: Mapping[str, float]) -> Verdict:
        """Take up an iteration's metrics.

        Args:
            iteration: Updates done before it.
            metrics: What it measured; what is absent or not finite was not measured.
        """
        for name, series in self._series.items():
            value = metrics.get(name, math.nan)
            if math.isfinite(value):
                series[iteration] = value
        verdict = diagnose(self._series)
        self._verdicts[iteration] = verdict.status
        return verdict

    @property
    def healthy(self) -> int:
        """Of the iterations that were judged healthy, the one with the best training success, smoothed; 0: none.

        Verdicts wait for patience and smoothing, so the last of them may have begun to fall already. Iteration 0 is
        none to go back to: a run that begins anew with other settings is another run.
        """
        known = self._series[SUCCESS]
        smoothed = dict(zip(known, exponential_moving_average(list(known.values()), _DECAY), strict=True))
        healthy = [iteration for iteration, status in self._verdicts.items() if iteration and status == "healthy"]
        return max(healthy, key=lambda iteration: (smoothed.get(iteration, -math.inf), iteration), default=0)

    @property
    def has_worsened(self) -> bool:
        """Is the verdict worse than after the iteration before?"""
        *before, now = [_BADNESS.index(status) for status in self._verdicts.values()]
        return now > (before[-1] if before else 0)


def is_due(config: DiagnosticsConfig, verdict: Verdict) -> bool:
    """Do the settings ask for something to be done about this?"""
    return config.on_collapse != "log" and _BADNESS.index(verdict.status) >= _BADNESS.index(config.alarm)
