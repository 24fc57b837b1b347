"""The page's curves: which metrics share a panel, what a panel says, raw points beside their moving average.

metric series -> panels -> (page's script draws them)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from starpo.ragen.evidence.diagnostics.series import Series
from starpo.ragen.evidence.diagnostics.smoothing import exponential_moving_average

Points = list[tuple[float, ...]]


@dataclass(frozen=True)
class Line:
    """A curve.

    Attributes:
        label: What it is called in the legend.
        raw: (iteration, value) as measured.
        smooth: The same, averaged; empty: the raw points are the curve.
        band: (iteration, low, high), the 95% interval; empty: none.
        colour: Number of its colour; None: its place in the panel.
    """

    label: str
    raw: Points
    smooth: Points = field(default_factory=list)
    band: Points = field(default_factory=list)
    colour: int | None = None


@dataclass(frozen=True)
class Panel:
    """Curves over one pair of axes.

    Attributes:
        title: What is shown.
        note: Its unit, and what to look for.
        lines: At least one.
        is_share: Is the value axis 0 to 1, written in percent?
        is_log: Is the value axis logarithmic? Only where all values are above 0.
    """

    title: str
    note: str
    lines: list[Line]
    is_share: bool = False
    is_log: bool = False


_DISTINCT = "rollout/distinct_response_share"
_DEPENDENCE = "reasoning/first_turn/token/mutual_information"
_RETRIEVAL = "reasoning/first_turn/token/retrieval_at_1_above_chance"
_SINGLE = (
    ("Training success", "share of trajectories, at the training temperature", "rollout/success_rate", True, False),
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
"""(title, note, metric, is_share, is_log) of the panels with one curve each, in the order of the page; of a mixture,
with one of each part beside it (`<metric>/<tag>`)."""


def main_panels(series: Mapping[str, Series]) -> list[Panel]:
    """The panels that every report begins with; a panel whose metric was never measured is left out."""
    panels = [evaluation] if (evaluation := _evaluation(series)).lines else []
    for title, note, metric, is_share, is_log in _SINGLE:
        if values := series.get(metric):
            is_log = is_log and min(values.values()) > 0.0
            parts = {name.removeprefix(f"{metric}/"): name for name in sorted(series) if name.startswith(f"{metric}/")}
            lines = [smoothed_line("all" if parts else title, values)]
            lines += [smoothed_line(tag, series[name]) for tag, name in parts.items()]
            panels.append(Panel(title, note, lines, is_share, is_log))
    return panels


def other_panels(series: Mapping[str, Series]) -> list[Panel]:
    """A small panel for every other metric with at least two points, sorted by name."""
    shown = {metric for _, _, metric, _, _ in _SINGLE}
    shown |= {name for name in series if name.rpartition("/")[0] in shown}
    return [
        Panel(name, "", [smoothed_line(name, values)])
        for name, values in sorted(series.items())
        if name not in shown and len(values) > 1 and not name.endswith(("/success", "/success_low", "/success_high"))
    ]


def compared_panels(runs: Sequence[tuple[str, str, Mapping[str, Series]]]) -> tuple[list[Panel], list[Panel]]:
    """The panels of several runs, a line a run.

    Args:
        runs: Name, environment and series of each.

    Returns:
        Those that a report begins with, and a panel for every other metric that at least two runs have, by name. A
        line has the number of its run as colour, so that a run without the metric leaves its colour out.
    """
    main = [panel for panel in [_compared_evaluation(runs)] if panel.lines]
    for title, note, metric, is_share, is_log in _SINGLE:
        lines = _compared(runs, metric)
        if lines:
            is_log = is_log and min(value for line in lines for _, value in line.raw) > 0.0
            main.append(Panel(title, note, lines, is_share, is_log))
    own = {f"evaluation/{environment}/success" for _, environment, _ in runs}
    known = {metric for _, _, metric, _, _ in _SINGLE} | own
    names = sorted({name for _, _, series in runs for name in series} - known)
    other = []
    for name in names:
        lines = _compared(runs, name)
        if len(lines) > 1 and any(len(line.raw) > 1 for line in lines) and not name.endswith(("_low", "_high")):
            other.append(Panel(name, "", lines, is_share=name.endswith("/success")))
    return main, other


def _compared(runs: Sequence[tuple[str, str, Mapping[str, Series]]], metric: str) -> list[Line]:
    return [
        replace(smoothed_line(run, series[metric]), colour=number)
        for number, (run, _, series) in enumerate(runs)
        if series.get(metric)
    ]


def _compared_evaluation(runs: Sequence[tuple[str, str, Mapping[str, Series]]]) -> Panel:
    lines = []
    for number, (run, environment, series) in enumerate(runs):
        if values := series.get(f"evaluation/{environment}/success"):
            lines.append(Line(run, list(values.items()), band=_band(series, environment), colour=number))
    note = "share of each run's fixed panel; the band is the 95% interval"
    return Panel("Evaluation success", note, lines, is_share=True)


FEWEST_SMOOTHED = 10
"""As many points as the average looks back on; a curve of fewer is shown as measured."""


def smoothed_line(label: str, values: Series) -> Line:
    """A metric's points and, where there are enough, their exponential moving average (RAGEN, training settings)."""
    points: Points = list(values.items())
    if len(points) < FEWEST_SMOOTHED:
        return Line(label, points)
    smooth = exponential_moving_average(list(values.values()))
    return Line(label, points, list(zip(values, map(float, smooth), strict=True)))


def _evaluation(series: Mapping[str, Series]) -> Panel:
    """Success on every evaluated environment; never smoothed, as its points are far apart and have intervals."""
    lines = []
    for name, values in series.items():
        if name.startswith("evaluation/") and name.endswith("/success"):
            cell = name.removeprefix("evaluation/").removesuffix("/success")
            lines.append(Line(cell, list(values.items()), band=_band(series, cell)))
    lines.sort(key=lambda line: -len(line.raw))
    return Panel("Evaluation success", "share of the fixed panel; the band is the 95% interval", lines, is_share=True)


def _band(series: Mapping[str, Series], cell: str) -> Points:
    low, high = (series.get(f"evaluation/{cell}/success_{end}", {}) for end in ("low", "high"))
    return [(x, low[x], high[x]) for x in low if x in high]
