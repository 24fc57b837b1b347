"""Chosen runs beside each other: curves, success and its difference from the first run, settings that differ.

names -> ViewedRun, Counts of the last evaluation -> Comparison, JSON that the page draws
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starpo.ragen.agents.evaluation.comparison import PanelDifference
from starpo.ragen.core.errors import ConfigError, StarPOError, StoreError, one_line
from starpo.ragen.evidence.report.data import RunData
from starpo.ragen.evidence.report.words import differing, differing_settings
from starpo.ragen.evidence.view.last_evaluations import LastEvaluation, compare_last
from starpo.ragen.evidence.view.overlay import OverlaidRun, group_labels, overlay, seed_groups
from starpo.ragen.evidence.view.reading import StoreReader
from starpo.ragen.learning.metrics.glossary import meanings

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
        OverlaidRun(label, colour, [chosen.runs[number].series for number in group])
        for colour, (label, group) in enumerate(zip(group_labels(records, groups), groups, strict=True))
    ]
    colours = {number: colour for colour, group in enumerate(groups) for number in group}
    panels = overlay(singly, environments, different)
    return {
        "runs": names,
        "refused": chosen.refused,
        "panels": panels,
        "glossary": meanings({line["metric"] for panel in panels for line in panel["lines"]}),
        "over_seeds": overlay(joined, environments, different) if len(groups) < len(names) else None,
        "colours_over_seeds": [colours[number] for number in range(len(names))],
        "rows": _rows(reader, chosen.runs, groups[0]),
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


def _rows(reader: StoreReader, runs: Sequence[RunData], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for each run; `seeds`: numbers of those that differ from the first in their seed alone."""
    lasts = [
        LastEvaluation(
            data.run.environment,
            f"evaluation/{data.run.environment}/success" in data.series,
            reader.last_counts(data),
        )
        for data in runs
    ]
    compared_with_first = [(None, ""), *(compare_last(last, lasts[0]) for last in lasts[1:])]
    of_seed = "; the two differ in their seed alone, so this is what a seed changes"
    return [
        _row(
            data,
            difference,
            words + (of_seed if difference and number in seeds else ""),
            len(last.counts) if last.counts else None,
        )
        for number, (data, last, (difference, words)) in enumerate(zip(runs, lasts, compared_with_first, strict=True))
    ]


def _row(data: RunData, difference: PanelDifference | None, words: str, num_states: int | None) -> dict[str, Any]:
    run, cell = data.run, f"evaluation/{data.run.environment}/success"
    low, high = (data.series.get(f"{cell}_{end}", {}) for end in ("low", "high"))
    points = [
        {"updates": data.updates.get(at, 0), "success": value, "low": low.get(at), "high": high.get(at)}
        for at, value in data.series.get(cell, {}).items()
    ]
    return {
        "run": run.name,
        "preset": run.preset,
        "environment": run.environment,
        "seed": run.stated.get("seed"),
        "first": points[0] if len(points) > 1 else None,
        "last": points[-1] if points else None,
        "num_states": num_states,
        "difference": None if difference is None else asdict(difference),
        "words": words,
    }


def _aligned(values: Mapping[str, Mapping[str, str]], names: Sequence[str]) -> list[list[str]]:
    """Return rows of a name and the value of each run."""
    return [[name, *(of[run] for run in names)] for name, of in values.items()]


def _commands(store: str, names: Sequence[str]) -> list[list[str]]:
    """Return the words of the commands that print and draw the same."""
    command = ["starpo", "compare", *names, "--store", store]
    return [command, [*command, "-o", "curves.svg"], [*command, "-o", "success.csv"]]
