"""Chosen runs beside each other: curves, success and its difference from the first run, settings that differ.

names -> ViewedRun, Counts of the last evaluation -> Comparison, JSON that the page draws
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starpo.ragen.agents.evaluation.comparison import Counts, PanelDifference, compare_counts
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError, StarPOError, StoreError, one_line
from starpo.ragen.evidence.report.data import RunData
from starpo.ragen.evidence.report.words import differing, differing_settings
from starpo.ragen.evidence.view.overlay import OverlaidRun, group_labels, overlay, seed_groups
from starpo.ragen.evidence.view.reading import StoreReader

MAX_RUNS = 12
"""Runs that are compared at once."""


@dataclass(frozen=True)
class Chosen:
    """Runs that can be compared, and what is wrong with the others.

    Attributes:
        runs: What they measured, in the order of their choice; at least one.
        refused: A sentence for each name without a run that can be read.
    """

    runs: list[RunData]
    refused: list[str]


def chosen_names(parameters: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names in an address: `run`, any number of times.

    Raises:
        ConfigError: If there is none, there are too many, or something else is asked for.
    """
    unknown = [name for name, _ in parameters if name != "run"]
    names = list(dict.fromkeys(value for name, value in parameters if name == "run" and value))
    example = "an address is /compare?run=NAME&run=OTHER"
    if unknown:
        raise ConfigError(f"{unknown[0]}: only run can be chosen; {example}")
    if not names:
        raise ConfigError(f"no run is chosen; {example}, and the page of all runs has a button that opens it")
    if len(names) > MAX_RUNS:
        raise ConfigError(f"{len(names)} runs are chosen: at most {MAX_RUNS} can be compared at once; leave some out")
    return names


def version_of(reader: StoreReader, names: Sequence[str]) -> str:
    """Return what differs once a stage of one of the runs was recorded, or one has come or gone."""
    versions = []
    for name in names:
        try:
            versions.append(reader.version(name))
        except StarPOError:
            versions.append("none")
    return " ".join(versions)


def choose(reader: StoreReader, names: Sequence[str]) -> Chosen:
    """Read the runs.

    Raises:
        StoreError: If none of them can be read.
    """
    chosen = Chosen([], [])
    for name in names:
        try:
            data = reader.run(name).data
            data.run.environment  # noqa: B018  # raises where its settings are damaged
        except StarPOError as error:
            chosen.refused.append(one_line(error))
        else:
            chosen.runs.append(data)
    if not chosen.runs:
        raise StoreError("; ".join(chosen.refused))
    return chosen


def compared(reader: StoreReader, chosen: Chosen) -> dict[str, Any]:
    """Return what the page draws, as JSON."""
    records = [data.run for data in chosen.runs]
    names = [record.name for record in records]
    groups = seed_groups(records)
    environments = [record.environment for record in records]
    different = _different_panels(chosen.runs)
    singly = [OverlaidRun(data.run.name, number, [data.series]) for number, data in enumerate(chosen.runs)]
    joined = [
        OverlaidRun(label, group[0], [chosen.runs[number].series for number in group])
        for label, group in zip(group_labels(records, groups), groups, strict=True)
    ]
    counts = [reader.last_counts(data) for data in chosen.runs]
    return {
        "runs": names,
        "refused": chosen.refused,
        "panels": overlay(singly, environments, different),
        "over_seeds": overlay(joined, environments, different) if len(groups) < len(names) else None,
        "rows": [_row(data, of, chosen.runs[0], counts[0]) for data, of in zip(chosen.runs, counts, strict=True)],
        "settings": _aligned(differing_settings(records), names),
        "code": _aligned(differing({record.name: record.code for record in records}), names),
        "commands": _commands(reader.store.url, names),
    }


def _different_panels(runs: Sequence[RunData]) -> dict[str, bool]:
    """Map each evaluation's name to whether the runs' panels of that name have different states."""
    panels: dict[str, set[str]] = {}
    for data in runs:
        for place, manifest in data.manifests.items():
            if place.kind == "episodes" and "panel" in manifest.settings:
                panels.setdefault(place.stage.removeprefix("evaluate:"), set()).add(str(manifest.settings["panel"]))
    return {cell: len(digests) > 1 for cell, digests in panels.items()}


def _row(data: RunData, counts: Counts | None, base: RunData, base_counts: Counts | None) -> dict[str, Any]:
    run, cell = data.run, f"evaluation/{data.run.environment}/success"
    ends = {
        name: data.series.get(f"{cell}{end}", {}) for name, end in (("success", ""), ("low", "_low"), ("high", "_high"))
    }
    points = [
        {"updates": data.updates.get(at, 0), **{name: series.get(at) for name, series in ends.items()}}
        for at in ends["success"]
    ]
    difference = None
    if data is not base and counts and base_counts and run.environment == base.run.environment:
        difference = compare_counts(counts, base_counts)
    return {
        "run": run.name,
        "preset": run.preset,
        "environment": run.environment,
        "seed": run.stated.get("seed"),
        "first": points[0] if len(points) > 1 else None,
        "last": points[-1] if points else None,
        "num_states": len(counts) if counts else None,
        "difference": None if difference is None else asdict(difference),
        "words": "" if data is base else _words(data, counts, base, base_counts, difference),
    }


def _words(
    data: RunData, counts: Counts | None, base: RunData, base_counts: Counts | None, difference: PanelDifference | None
) -> str:
    """Say what a difference comes to, or why there is none."""
    environments = data.run.environment, base.run.environment
    if environments[0] != environments[1]:
        return f"not compared: it is evaluated on {environments[0]}, the first run on {environments[1]}"
    if difference is None:
        which, lacking, of = ("the first run", base, base_counts) if not base_counts else ("it", data, counts)
        is_evaluated = f"evaluation/{environments[0]}/success" in lacking.series
        if of is None and is_evaluated:
            return f"not compared: the episodes of {which if which != 'it' else 'its evaluation'} cannot be read"
        return f"not compared: {which} has no evaluation yet"
    outcome = "no difference that can be told from chance"
    if difference.is_apart:
        outcome = "higher than the first run" if difference.mean > 0 else "lower than the first run"
    if not difference.num_pairs:
        num_shared = len((counts or {}).keys() & (base_counts or {}).keys())
        shared = f"share {counted(num_shared, 'state')}" if num_shared else "share no state"
        return (
            f"{outcome}; not paired: the panels, of {len(base_counts or {})} and {len(counts or {})} states, {shared}, "
            "so the interval is that of two independent rates"
        )
    paired = f"paired over {counted(difference.num_pairs, 'state')}"
    return f"{outcome}; {paired}, better on {difference.num_up}, worse on {difference.num_down}"


def _aligned(values: Mapping[str, Mapping[str, str]], names: Sequence[str]) -> list[list[str]]:
    """Return rows of a name and the value of each run."""
    return [[name, *(of[run] for run in names)] for name, of in values.items()]


def _commands(store: str, names: Sequence[str]) -> list[str]:
    """Return the commands that print and draw the same."""
    command = shlex.join(["starpo", "compare", *names, "--store", store])
    return [command, f"{command} -o curves.svg", f"{command} -o success.csv"]
