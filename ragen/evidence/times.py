"""Breakdown of a run's time from its manifests; nothing is measured here.

runs/<run> + manifests -> stage_seconds, update_seconds, seconds_between -> times_of -> rows of `starpo show --timings`
"""

from collections.abc import Mapping
from datetime import datetime
from statistics import median
from typing import Any

from starpo.ragen.evidence.reading import Place, Reader, places
from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.store import Store
from starpo.schemas.manifest import Manifest

BETWEEN = "between stages"


def times_of(store: Store, run: str) -> list[dict[str, Any]]:
    """Break down the time of a run: a row per stage, longest first, then one per part of the update.

    The seconds of a stage include reading its inputs and storing all but its last dataset. `between stages` is the rest
    of the iterations, including the writing of that last dataset: Prefect and the store. Parts of the update also count
    towards the update.

    Args:
        store: Store that holds the run.
        run: Name of the run. Unreadable parts are left out.

    Returns:
        Rows of stage, times (executions), the median of their seconds, the total, and its share in that of all stages
        and the time between them. The total of `between stages` is the median times the number.

    Raises:
        StoreError: If there is no such run.
    """
    record, reader = store.runs.get(run), Reader(store)
    manifests = reader.manifests(places(reader.iterations(record)))
    seconds, between = stage_seconds(manifests), seconds_between(manifests)
    if between:
        seconds[BETWEEN] = dict.fromkeys(between, median(between.values()))
    everything = sum(sum(series.values()) for series in seconds.values()) or 1.0
    parts = {f"update: {part}": series for part, series in update_seconds(manifests).items()}
    return [
        {
            "stage": stage,
            "times": len(series),
            "seconds": median(series.values()),
            "total": total,
            "share": total / everything,
        }
        for group in (seconds, parts)
        for stage, series in sorted(group.items(), key=lambda of_stage: -sum(of_stage[1].values()))
        for total in (sum(series.values()),)
    ]


def stage_seconds(manifests: Mapping[Place, Manifest]) -> dict[str, Series]:
    """Map stage -> iteration -> wall-clock seconds of the work that produced its artifacts, in whichever run that was.

    The seconds of a stage are those of its artifact written last, as its work began before the first of them. A reused
    artifact (Online-k) counts only once.
    """
    seconds: dict[str, Series] = {}
    for place, manifest in first_uses(manifests).items():
        value = manifest.provenance.get("seconds")
        if value is not None:
            of_stage = seconds.setdefault(place.stage, {})
            of_stage[place.iteration] = max(of_stage.get(place.iteration, 0.0), float(value))
    return seconds


def update_seconds(manifests: Mapping[Place, Manifest]) -> dict[str, Series]:
    """Map part of the update (score, train, review) -> iteration -> its wall-clock seconds."""
    seconds: dict[str, Series] = {}
    for place, manifest in first_uses(manifests).items():
        for name, value in (manifest.provenance.get("timings") or {}).items():
            if name.endswith("_s") and not name.endswith("_per_s"):
                seconds.setdefault(name.removesuffix("_s"), {})[place.iteration] = float(value)
    return seconds


def seconds_between(manifests: Mapping[Place, Manifest]) -> Series:
    """Map each iteration to its seconds in which none of its stages was running.

    An iteration lasts from the end of the last stage of the previous iteration to the end of its own; stages may run
    concurrently. The value is meaningless if the run was interrupted or uses artifacts of another run: use the median.
    """
    spans: dict[int, list[tuple[float, float]]] = {}
    for place, manifest in first_uses(manifests).items():
        seconds, written_at = manifest.provenance.get("seconds"), manifest.provenance.get("written_at")
        if seconds is not None and written_at is not None:
            end = datetime.fromisoformat(written_at).timestamp()
            spans.setdefault(place.iteration, []).append((end - seconds, end))
    idle_seconds: Series = {}
    for iteration in spans:
        if iteration - 1 in spans:
            free_from, idle = max(end for _, end in spans[iteration - 1]), 0.0
            for begin, end in sorted(spans[iteration]):
                idle += max(0.0, begin - free_from)
                free_from = max(free_from, end)
            idle_seconds[iteration] = idle
    return idle_seconds


def first_uses(manifests: Mapping[Place, Manifest]) -> dict[Place, Manifest]:
    """Drop the places of artifacts that an earlier place already uses (Online-k)."""
    first: dict[tuple[str, str], Place] = {}
    for place in manifests:
        first.setdefault((place.kind, place.key), place)
    return {place: manifests[place] for place in first.values()}
