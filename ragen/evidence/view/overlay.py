"""Curves of several runs on the same axes; runs that differ in their seed alone also as one line over their seeds.

records -> groups of seeds -> OverlaidRun -> panels -> (drawn by the page's script)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from starpo.ragen.evidence.report.curves import SINGLE, Line, Points, smoothed_line
from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.store.artifacts.keys import canonical_json
from starpo.ragen.store.records.run import RunRecord


@dataclass(frozen=True)
class OverlaidRun:
    """A line of every panel: a run, or several that differ in their seed alone.

    Attributes:
        label: Label in the legend.
        colour: Number of its colour.
        members: Metrics of each run by name and iteration; at least one run.
    """

    label: str
    colour: int
    members: Sequence[Mapping[str, Series]]


def seed_groups(records: Sequence[RunRecord]) -> list[list[int]]:
    """Return the numbers of the runs that differ in their seed alone, together, in the order of the first of each."""
    groups: dict[str, list[int]] = {}
    for number, record in enumerate(records):
        settings = {name: value for name, value in record.stated.items() if name != "seed"}
        key = canonical_json([record.flow, record.parameters, record.code, settings])
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def group_labels(records: Sequence[RunRecord], groups: Sequence[Sequence[int]]) -> list[str]:
    """Name each group: a run alone by its name, seeds by their preset, or by the first of them if presets repeat."""
    presets = [records[group[0]].preset for group in groups]
    labels = []
    for group, preset in zip(groups, presets, strict=True):
        first = records[group[0]].name
        name = preset if preset and presets.count(preset) == 1 else first
        seeds = ", ".join(str(records[number].stated.get("seed", "unknown")) for number in group)
        labels.append(first if len(group) == 1 else f"seeds {seeds} of {name}")
    return labels


def overlay(
    runs: Sequence[OverlaidRun], environments: Sequence[str], different_panels: Mapping[str, bool]
) -> list[dict[str, Any]]:
    """Return the panels of the runs, a line each; success first, and on what they train on before other panels.

    Args:
        runs: The lines, at least one.
        environments: Environments that they train on.
        different_panels: Name of a panel -> whether the runs evaluated on it started from different states.

    Returns:
        JSON as of `CurvePanel`; a line has also its `colour`, and `is_range`: whether its band is from the lowest to
        the highest of several seeds.
    """
    num_with = {cell: sum(_has(run, _success(cell)) for run in runs) for cell in _cells(runs)}
    wanted = [
        (
            f"Success on {cell}",
            "share of its panel" + ("; not all on the same states" if different_panels.get(cell) else ""),
            _success(cell),
            True,
            False,
        )
        for cell in sorted(num_with, key=lambda cell: (cell not in environments, -num_with[cell]))
    ]
    panels = []
    for title, note, metric, is_share, is_log in (*wanted, *SINGLE):
        lines = [line for run in runs if (line := _line(run, metric))]
        if lines:
            lowest = min(value for line in lines for _, value in line["raw"])
            lowest = min([lowest, *(point[1] for line in lines for point in line["band"])])
            is_log = is_log and lowest > 0.0
            panels.append({"title": title, "note": note, "lines": lines, "is_share": is_share, "is_log": is_log})
    return panels


def _line(run: OverlaidRun, metric: str) -> dict[str, Any] | None:
    measured = [series for of_run in run.members if (series := of_run.get(metric))]
    if not measured:
        return None
    is_range = len(measured) > 1
    mean, band = _over_seeds(measured) if is_range else (measured[0], _interval(run.members, metric))
    if not mean:
        return None
    is_success = metric.startswith("evaluation/")  # never smoothed: its points are sparse and have intervals
    line = Line(run.label, metric, list(mean.items())) if is_success else smoothed_line(run.label, metric, mean)
    return {**vars(replace(line, band=band)), "colour": run.colour, "is_range": is_range}


def _over_seeds(seeds: Sequence[Series]) -> tuple[Series, Points]:
    """Return mean, and lowest and highest, at the iterations that all seeds have measured."""
    shared = sorted(set[int].intersection(*map(set, seeds)))
    values = {iteration: [series[iteration] for series in seeds] for iteration in shared}
    return {at: fmean(of) for at, of in values.items()}, [(at, min(of), max(of)) for at, of in values.items()]


def _interval(members: Sequence[Mapping[str, Series]], metric: str) -> Points:
    [series] = [of_run for of_run in members if of_run.get(metric)]
    low, high = (series.get(f"{metric}_{end}", {}) for end in ("low", "high"))
    return [(at, low[at], high[at]) for at in low if at in high]


def _cells(runs: Sequence[OverlaidRun]) -> list[str]:
    names = dict.fromkeys(name for run in runs for of_run in run.members for name in of_run)
    return [
        name.removeprefix("evaluation/").removesuffix("/success")
        for name in names
        if name.startswith("evaluation/") and name.endswith("/success")
    ]


def _success(cell: str) -> str:
    return f"evaluation/{cell}/success"


def _has(run: OverlaidRun, metric: str) -> bool:
    return any(of_run.get(metric) for of_run in run.members)
