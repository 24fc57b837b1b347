"""Online-k in hindsight: the updates of a run by how often their rollout had been used before (`starpo show`)."""

from collections.abc import Mapping
from statistics import fmean

from starpo.ragen.store.records.runs import StageKeys

_BEFORE = "update/validity_before/"


def by_reuse(recorded: Mapping[int, StageKeys], metrics: Mapping[int, Mapping[str, float]]) -> list[dict[str, float]]:
    """Aggregate the updates of a run by the number of updates that their rollout had served before.

    Args:
        recorded: Iteration -> its recorded stages.
        metrics: Iteration -> metrics of its stages.

    Returns:
        `reuse`, `num_updates`, and the means over these updates of `clip_fraction` and of the measurements of
        `learners.validity` before the first step. Empty if no update recorded these.
    """
    updates: dict[int, list[dict[str, float]]] = {}
    turns, reuse = "", 0
    for iteration, stages in recorded.items():
        if "rollout" not in stages:
            continue
        if stages["rollout"]["turns"] != turns:
            turns, reuse = stages["rollout"]["turns"], 0
        if "update" in stages:
            if values := _validity(metrics[iteration]):
                updates.setdefault(reuse, []).append(values)
            reuse += 1
    rows = []
    for number, measured in sorted(updates.items()):
        names = dict.fromkeys(name for values in measured for name in values)
        means = {name: fmean(values[name] for values in measured if name in values) for name in names}
        rows.append({"reuse": number, "num_updates": len(measured), **means})
    return rows


def _validity(metrics: Mapping[str, float]) -> dict[str, float]:
    values = {name.removeprefix(_BEFORE): value for name, value in metrics.items() if name.startswith(_BEFORE)}
    if values and "update/clip_fraction" in metrics:  # absent while only the critic learns
        values["clip_fraction"] = metrics["update/clip_fraction"]
    return values
