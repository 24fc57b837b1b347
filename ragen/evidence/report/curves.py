"""Curves of the page: metrics per panel, panel titles and notes, measured points and their local means.

metric series -> panels -> (drawn by the page's script)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum
from statistics import linear_regression

from starpo.ragen.agents.evaluation.intervals import success_interval
from starpo.ragen.evidence.report.decisions import Decision
from starpo.ragen.learning.metrics.glossary import explain
from starpo.ragen.learning.metrics.table import Series

Points = list[tuple[float, ...]]


@dataclass(frozen=True)
class Line:
    """A curve.

    Attributes:
        label: Label in the legend.
        metric: Name of the metric.
        raw: (iteration, value) as measured.
        smooth: The same, smoothed; if empty, the measured points are joined.
        band: (iteration, low, high), the 95% interval; empty if there is none.
    """

    label: str
    metric: str
    raw: Points
    smooth: Points = field(default_factory=list)
    band: Points = field(default_factory=list)


@dataclass(frozen=True)
class CurvePanel:
    """Curves on one pair of axes.

    Attributes:
        title: Title of the panel.
        note: Unit, and what to look for.
        lines: At least one.
        is_share: Whether the value axis is 0 to 1, labelled in percent.
        is_log: Whether the value axis is logarithmic, which requires all values to be above 0.
    """

    title: str
    note: str
    lines: list[Line]
    is_share: bool = False
    is_log: bool = False


_SUCCESS = "rollout/success_rate"
_DISTINCT = "rollout/distinct_response_share"
_DEPENDENCE = "reasoning/first_turn/token/mutual_information"
_RETRIEVAL = "reasoning/first_turn/token/retrieval_at_1_above_chance"
SINGLE = (
    ("Training success", "share of trajectories, at the training temperature", _SUCCESS, True, False),
    ("Mean return", "reward units, penalties included", "reward/return_mean", False, False),
    ("In-group reward std", "reward units; it falls before the reward does", "reward/in_group_std", False, False),
    ("Entropy", "nats per token", "rollout/entropy", False, False),
    ("Response length", "tokens per response", "rollout/response_length_mean", False, False),
    ("Gradient norm", "before clipping; a spike is often the point of no return", "update/gradient_norm", False, True),
    ("Well-formed responses", "share of responses", "rollout/format_ok", True, False),
    ("Distinct responses", "share of responses; it falls in the Echo Trap", _DISTINCT, True, False),
    (
        "Reasoning depends on the prompt",
        "I(X; Z), nats per token; it falls in template collapse",
        _DEPENDENCE,
        False,
        False,
    ),
    ("Reasoning identifies its prompt", "its own prompt is the likeliest: share above chance", _RETRIEVAL, True, False),
)
"""(title, note, metric, is_share, is_log) of the panels with one curve each, in page order; for a mixture, with an
additional curve per part (`<metric>/<tag>`)."""


def main_panels(series: Mapping[str, Series], remark: str = "", decisions: Iterable[Decision] = ()) -> list[CurvePanel]:
    """Return the panels at the top of every report; panels without measurements are left out.

    Args:
        series: Metrics by name and iteration.
        remark: Remark on what is evaluated.
        decisions: Of the filter on every group, for the interval of training success.
    """
    bands = {_SUCCESS: training_band(series.get(_SUCCESS, {}), decisions)}
    panels = [evaluation] if (evaluation := _evaluation(series, remark)).lines else []
    for title, note, metric, is_share, is_log in SINGLE:
        if values := series.get(metric):
            is_log = is_log and min(values.values()) > 0.0
            parts = {name.removeprefix(f"{metric}/"): name for name in sorted(series) if name.startswith(f"{metric}/")}
            band = bands.get(metric, [])
            note += ", with the 95% interval over groups" if band else ""
            lines = [smoothed_line("all" if parts else title, metric, values, band)]
            lines += [smoothed_line(tag, name, series[name]) for tag, name in parts.items()]
            panels.append(CurvePanel(title, note, lines, is_share, is_log))
    return panels


def other_panels(series: Mapping[str, Series]) -> list[CurvePanel]:
    """Return a small panel for every other metric with at least two points, sorted by name."""
    shown = {metric for _, _, metric, _, _ in SINGLE}
    shown |= {name for name in series if name.rpartition("/")[0] in shown}
    return [
        CurvePanel(name, metric.unit if (metric := explain(name)) else "", [smoothed_line(name, name, values)])
        for name, values in sorted(series.items())
        if name not in shown and len(values) > 1 and not name.endswith(("/success", "/success_low", "/success_high"))
    ]


_SAME_RATE = 1e-6
"""Largest difference of two success rates of the same trajectories."""
FEWEST_SMOOTHED = 10
"""Minimum number of points for smoothing; shorter curves are shown as measured."""
WINDOW = 5
"""Points that a smoothed value is of: a point and two neighbours on each side; at an end, the five of that end."""


def smoothed_line(label: str, metric: str, values: Series, band: Points | None = None) -> Line:
    """Build the line of a metric, smoothed if it is long enough."""
    points: Points = list(values.items())
    return Line(label, metric, points, smoothed(points) if len(points) >= FEWEST_SMOOTHED else [], band or [])


def training_band(success: Series, decisions: Iterable[Decision]) -> Points:
    """Compute the 95% interval of training success over the groups of each iteration.

    Trajectories of a group start from one state and succeed together, so groups are the clusters (`success_interval`).

    Args:
        success: Measured success rate by iteration.
        decisions: Of the filter on every group.

    Returns:
        (iteration, low, high); without iterations whose readable groups do not add up to the measured rate.
    """
    groups: dict[int, list[Decision]] = {}
    for decision in decisions:
        if decision.num_valid and decision.iteration in success:
            groups.setdefault(decision.iteration, []).append(decision)
    band: Points = []
    for iteration, of_iteration in sorted(groups.items()):
        trials = tuple(group.num_valid for group in of_iteration)
        successes = tuple(round(group.success_rate * group.num_valid) for group in of_iteration)
        if abs(sum(successes) / sum(trials) - success[iteration]) < _SAME_RATE:
            band.append((iteration, *_interval(successes, trials)))
    return band


@lru_cache(maxsize=4096)  # a live page asks for all iterations again with each new one
def _interval(successes: tuple[int, ...], trials: tuple[int, ...]) -> tuple[float, float]:
    return success_interval(successes, trials)


def smoothed(points: Points) -> Points:
    """Smooth a curve by local means that neither lag nor stop before its ends.

    In the middle, a value is the mean of five points. The two points at either end lack neighbours on one side, where a
    mean would lag: there it is the least-squares line through the five points of that end, within their range.

    Args:
        points: (iteration, value), at least five, in ascending order of iteration.
    """
    reach = WINDOW // 2
    starts = [min(max(0, at - reach), len(points) - WINDOW) for at in range(len(points))]
    windows = [points[start : start + WINDOW] for start in starts]
    return [
        (x, fsum(y for _, y in window) / WINDOW if start == at - reach else _on_line(window, x))
        for at, ((x, _), start, window) in enumerate(zip(points, starts, windows, strict=True))
    ]


def _on_line(points: Points, x: float) -> float:
    """Return the value at x of the least-squares line through the points, within the range of their values."""
    xs, ys = zip(*points, strict=True)
    slope, intercept = linear_regression(xs, ys)
    return min(max(ys), max(min(ys), slope * x + intercept))


def _evaluation(series: Mapping[str, Series], remark: str) -> CurvePanel:
    """Build the panel of evaluation success; never smoothed, as points are sparse and have intervals."""
    lines = []
    for name, values in series.items():
        if name.startswith("evaluation/") and name.endswith("/success"):
            cell = name.removeprefix("evaluation/").removesuffix("/success")
            lines.append(Line(cell, name, list(values.items()), band=_band(series, cell)))
    lines.sort(key=lambda line: -len(line.raw))
    note = "; ".join(filter(None, ("share of the fixed panel, with the 95% interval", remark)))
    return CurvePanel("Evaluation success", note, lines, is_share=True)


def _band(series: Mapping[str, Series], cell: str) -> Points:
    low, high = (series.get(f"evaluation/{cell}/success_{end}", {}) for end in ("low", "high"))
    return [(x, low[x], high[x]) for x in low if x in high]
