"""Collapse verdict: judges a run from its metric series and lists the signals behind the verdict.

    metrics --series--> signals --> healthy | warning | stalled | collapsing | collapsed

Signals (RAGEN, Fig 6): the in-group reward std falls before the reward does; a spike of the gradient norm marks the
point of no return; entropy, format and the variety of responses change with it. In addition, the drift of updates away
from the sampling policy, which comes first when rollouts are reused. Every signal is causal, independent of later
iterations, so the verdict on a stored run shows what could have been known, and when.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from starpo.ragen.learning.control.smoothing import exponential_moving_average
from starpo.ragen.learning.control.standstill import EXPLAINING, JUDGED, idle_metric, why_idle
from starpo.ragen.learning.control.thresholds import CollapseThresholds
from starpo.ragen.learning.metrics.table import Series

REWARD_STD, RETURN, SUCCESS = "reward/in_group_std", "reward/return_mean", "rollout/success_rate"
FORMAT, ENTROPY, DISTINCT = "rollout/format_ok", "rollout/entropy", "rollout/distinct_response_share"
GRADIENT, DRIFT = "update/gradient_norm", "update/kl_behaviour"

WATCHED = tuple(
    dict.fromkeys((REWARD_STD, RETURN, SUCCESS, FORMAT, ENTROPY, DISTINCT, GRADIENT, DRIFT, *JUDGED, *EXPLAINING))
)
"""Metrics that the verdict depends on."""

Severity = Literal["warning", "standstill", "collapse"]
Status = Literal["healthy", "warning", "stalled", "collapsing", "collapsed"]


@dataclass(frozen=True)
class Signal:
    """A condition that held for some time.

    Attributes:
        iteration: Iteration at which the signal was raised: the first at which the condition could be established.
        ended: First iteration at which the condition no longer held; None while it holds.
        name: Name of the metric.
        severity: 'warning', 'standstill' if nothing is learned, or 'collapse' if what was learnt is lost.
        value: Value of the metric when the signal was raised, as judged (smoothed, except metrics of an update).
        baseline: Reference value of the comparison.
        words: The signal as a sentence.
    """

    iteration: int
    ended: int | None
    name: str
    severity: Severity
    value: float
    baseline: float
    words: str


@dataclass(frozen=True)
class RunVerdict:
    """Verdict on a run at its last iteration.

    Attributes:
        status: 'collapsed' while a signal of severity 'collapse' holds, 'collapsing' while warnings of two metrics
            hold, 'stalled' while nothing is learned, 'warning' while warnings of one metric hold, else 'healthy': a run
            that has recovered is healthy, and its signals stay in the list.
        signals: All signals ever raised, in order of iteration.
    """

    status: Status
    signals: tuple[Signal, ...]

    @property
    def words(self) -> str:
        """The verdict as text: which signals hold now, and since when."""
        holding = [signal for signal in self.signals if signal.ended is None]
        if not holding:
            return f"{self.status}: no signal holds ({len(self.signals)} in the past)"
        return f"{self.status}: " + "; ".join(f"since iteration {s.iteration}, {s.words}" for s in holding)

    @property
    def standstill(self) -> str:
        """Why nothing is learned now, since when, and what to try; empty if the run learns."""
        holding = [signal for signal in self.signals if signal.ended is None and signal.severity == "standstill"]
        return "; ".join(f"since iteration {s.iteration}, {s.words}" for s in holding)


@dataclass(frozen=True)
class _Curve:
    """A metric as it is judged. `early`: mean of its first points; `best`: running maximum from the last of them on."""

    name: str
    iterations: list[int]
    values: np.ndarray
    early: float
    best: np.ndarray
    num_baseline: int


def diagnose(series: Mapping[str, Series], thresholds: CollapseThresholds | None = None) -> RunVerdict:
    """Judge a run.

    Args:
        series: Metric name -> iteration -> finite value. Unknown names are ignored, and a metric that is missing, or
            has no point after its baseline, raises no signal.
        thresholds: None for the defaults.
    """
    limits = thresholds or CollapseThresholds()
    curves = {name: curve for name in WATCHED if (curve := _curve(name, series.get(name, {}), limits))}
    signals: list[Signal] = []
    for judge in (_reward_std, _return, _success, _format, _entropy, _distinct):
        signals += judge(curves, limits)
    signals += _gradient_spikes(series.get(GRADIENT, {}), limits)
    signals += _drift(series.get(DRIFT, {}), limits)
    signals += _standstills(series, limits)
    signals.sort(key=lambda signal: (signal.iteration, signal.name, signal.severity))
    return RunVerdict(_status([signal for signal in signals if signal.ended is None]), tuple(signals))


def _status(holding: Sequence[Signal]) -> Status:
    if any(signal.severity == "collapse" for signal in holding):
        return "collapsed"
    num_metrics = len({signal.name for signal in holding if signal.severity == "warning"})
    if num_metrics > 1:
        return "collapsing"
    is_stalled = any(signal.severity == "standstill" for signal in holding)
    return "stalled" if is_stalled else "warning" if num_metrics else "healthy"


def _reward_std(curves: Mapping[str, _Curve], limits: CollapseThresholds) -> list[Signal]:
    """Judge the in-group reward std, the first metric to fall.

    A rising success rate lowers it too, towards sqrt(p (1 - p)); the bound allows for that.
    """
    if (curve := curves.get(REWARD_STD)) is None:
        return []
    bound = limits.std_warning * curve.early * _explained_by_success(curve, curves.get(SUCCESS))
    return _signals(
        curve,
        curve.values < bound,
        np.full_like(bound, curve.early),
        "warning",
        limits.patience,
        lambda value, early: (
            f"in-group reward std {value:.3g} has fallen from {early:.3g}: members of a group end "
            "alike, and the reward usually falls next"
        ),
    )


def _explained_by_success(curve: _Curve, success: _Curve | None) -> np.ndarray:
    """Share of its early std that a 0/1 outcome keeps as its rate rises above the early rate. float64 [points]"""
    shares = np.ones(len(curve.iterations))
    if success is None or not 0.0 < success.early < 1.0:
        return shares
    rates = dict(zip(success.iterations, success.values, strict=True))
    early_variance = success.early * (1 - success.early)
    for point, iteration in enumerate(curve.iterations):
        rate = rates.get(iteration, success.early)
        if rate > success.early:
            shares[point] = min(1.0, np.sqrt(rate * (1 - rate) / early_variance))
    return shares


def _return(curves: Mapping[str, _Curve], limits: CollapseThresholds) -> list[Signal]:
    curve, spread = curves.get(RETURN), curves.get(REWARD_STD)
    if curve is None or spread is None or spread.early <= 0.0:
        return []
    drop = (curve.best - curve.values) / spread.early
    return _by_severity(
        curve,
        [drop > limits.return_warning, drop > limits.return_collapse],
        limits.patience,
        lambda value, best: (
            f"mean return {value:.3g} is {(best - value) / spread.early:.1f} early in-group stds below "
            f"its best, {best:.3g}"
        ),
    )


def _success(curves: Mapping[str, _Curve], limits: CollapseThresholds) -> list[Signal]:
    if (curve := curves.get(SUCCESS)) is None:
        return []
    is_far_below = curve.best - curve.values >= limits.success_drop
    return _by_severity(
        curve,
        [
            is_far_below & (curve.values < share * curve.best)
            for share in (limits.success_warning, limits.success_collapse)
        ],
        limits.patience,
        lambda value, best: f"success rate {value:.3g} has fallen from its best, {best:.3g}",
    )


def _format(curves: Mapping[str, _Curve], limits: CollapseThresholds) -> list[Signal]:
    if (curve := curves.get(FORMAT)) is None:
        return []
    return _by_severity(
        curve,
        [curve.values < share * curve.best for share in (limits.format_warning, limits.format_collapse)],
        limits.patience,
        lambda value, best: f"only {value:.1%} of responses are well formed, {best:.1%} at best: the format decays",
    )


def _entropy(curves: Mapping[str, _Curve], limits: CollapseThresholds) -> list[Signal]:
    if (curve := curves.get(ENTROPY)) is None:
        return []
    early = np.full_like(curve.values, curve.early)
    fallen = _signals(
        curve,
        curve.values < limits.entropy_low * early,
        early,
        "warning",
        limits.patience,
        lambda value, early: f"entropy {value:.3g} has fallen from {early:.3g} nats a token: responses become fixed",
    )
    risen = _signals(
        curve,
        curve.values > limits.entropy_high * early,
        early,
        "warning",
        limits.patience,
        lambda value, early: f"entropy {value:.3g} has risen from {early:.3g} nats a token: the policy drifts to noise",
    )
    return fallen + risen


def _distinct(curves: Mapping[str, _Curve], limits: CollapseThresholds) -> list[Signal]:
    if (curve := curves.get(DISTINCT)) is None:
        return []
    early = np.full_like(curve.values, curve.early)
    return _signals(
        curve,
        curve.values < limits.distinct_share * early,
        early,
        "warning",
        limits.patience,
        lambda value, early: f"{value:.1%} of responses are distinct, {early:.1%} at first: the Echo Trap",
    )


def _gradient_spikes(series: Series, limits: CollapseThresholds) -> list[Signal]:
    """Detect points far above the median of the points before them, if that is not 0, as before the first reward; a
    spike holds for `spike_window` points."""
    values = np.array(list(series.values()), dtype=np.float64)
    medians = np.zeros_like(values)
    is_spike = np.zeros(len(values), dtype=bool)
    for point in range(limits.baseline_points, len(values)):
        medians[point] = median(values[max(0, point - limits.spike_window) : point].tolist())
        is_spike[point] = values[point] > limits.spike_factor * medians[point] > 0
    remembered = np.array(
        [is_spike[max(0, p - limits.spike_window) : p + 1].any() for p in range(len(values))], dtype=bool
    )
    curve = _Curve(GRADIENT, list(series), values, early=0.0, best=values, num_baseline=0)
    return _signals(
        curve,
        remembered,
        medians,
        "warning",
        1,
        lambda value, median: (
            f"gradient norm {value:.3g} after a median of {median:.3g}: a spike, often the point of no return"
        ),
    )


def _drift(series: Series, limits: CollapseThresholds) -> list[Signal]:
    """Detect updates that moved further from the sampling policy than its rollouts can support."""
    values = np.array(list(series.values()), dtype=np.float64)
    bounds = np.full_like(values, limits.drift)
    return _signals(
        _Curve(DRIFT, list(series), values, early=0.0, best=values, num_baseline=0),
        values > bounds,
        bounds,
        "warning",
        1,
        lambda value, bound: (
            f"the policy is {value:.2g} nats a token from the one that sampled, more than {bound:.2g}: it learns from "
            "what it would no longer do"
        ),
    )


def _standstills(series: Mapping[str, Series], limits: CollapseThresholds) -> list[Signal]:
    """Detect iterations that teach nothing: the first ones of a run at once, later ones if there are several in a
    row."""
    iterations = sorted({iteration for name in JUDGED for iteration in series.get(name, {})})
    signals: list[Signal] = []
    rows: list[tuple[int, dict[str, float], str]] = []  # consecutive idle iterations

    def end(at: int | None) -> None:
        needed = 1 if rows and rows[0][0] == iterations[0] else limits.patience
        if len(rows) >= needed:
            iteration, metrics, name = rows[needed - 1]
            signals.append(Signal(iteration, at, name, "standstill", metrics[name], 0.0, why_idle(metrics)))
        rows.clear()

    for iteration in iterations:
        metrics = {name: series[name][iteration] for name in WATCHED if iteration in series.get(name, {})}
        if (name := idle_metric(metrics)) is None:
            end(iteration)
        else:
            rows.append((iteration, metrics, name))
    end(None)
    return signals


def _curve(name: str, series: Series, limits: CollapseThresholds) -> _Curve | None:
    if len(series) <= limits.baseline_points:
        return None
    raw = np.array(list(series.values()), dtype=np.float64)
    smoothed = exponential_moving_average(raw, limits.decay)
    best = smoothed.copy()
    best[: limits.baseline_points - 1] = -np.inf  # the first values are barely smoothed, and would be the maximum
    return _Curve(
        name,
        list(series),
        smoothed,
        float(raw[: limits.baseline_points].mean()),
        np.maximum.accumulate(best),
        limits.baseline_points,
    )


def _by_severity(
    curve: _Curve, breaches: list[np.ndarray], patience: int, words: Callable[[float, float], str]
) -> list[Signal]:
    """Build signals for a fall from the best value so far: the first breach is a warning, the second a collapse."""
    warnings = _signals(curve, breaches[0], curve.best, "warning", patience, words)
    return warnings + _signals(curve, breaches[1], curve.best, "collapse", patience, words)


def _signals(
    curve: _Curve,
    is_breached: np.ndarray,
    references: np.ndarray,
    severity: Severity,
    patience: int,
    words: Callable[[float, float], str],
) -> list[Signal]:
    """Build a signal for every run of at least `patience` breached points, raised when it reaches that length."""
    is_breached = is_breached & (np.arange(len(is_breached)) >= curve.num_baseline)  # the baseline must be complete
    signals = []
    starts = np.flatnonzero(is_breached & ~np.concatenate([[False], is_breached[:-1]]))
    for start in starts:
        after = np.flatnonzero(~is_breached[start:])
        end = int(start + after[0]) if len(after) else len(is_breached)
        raised = int(start) + patience - 1
        if raised < end:
            value, reference = float(curve.values[raised]), float(references[raised])
            ended = curve.iterations[end] if end < len(is_breached) else None
            text = words(value, reference)
            signals.append(Signal(curve.iterations[raised], ended, curve.name, severity, value, reference, text))
    return signals
