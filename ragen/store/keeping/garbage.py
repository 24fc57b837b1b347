"""Garbage collection: artifacts that no run reaches, and leftovers of killed writers, once they are old enough.

    find_garbage: Reachability -> Garbage        delete_garbage: records read again -> manifests -> files

A run may be about to name an artifact that no run names yet. Therefore everything younger than the minimum age is kept,
and nothing is deleted if a run has named something of it since it was found. A killed deletion leaves folders without a
manifest, which are not artifacts and are removed by the next one.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store.keeping.inventory import ArtifactId, StoredFolder
from starpo.ragen.store.keeping.reachability import (
    Fault,
    Reach,
    Reachability,
    describe,
    named_keys,
    read_roots,
)
from starpo.ragen.store.records.runs import Runs
from starpo.ragen.store.remote.committing import DROPPED_NAME
from starpo.ragen.store.remote.location import NUM_REQUESTS, Location
from starpo.schemas.manifest import MANIFEST_NAME

MIN_AGE = timedelta(days=1)
"""How long an artifact that no run names is kept."""
LEAST_AGE_BESIDE_RUNS = timedelta(hours=1)
"""Smallest minimum age allowed while a run is active, which may take this long between storing and naming an
artifact."""

Category = Literal["artifact", "unfinished", "temporary", "quarantine"]


@dataclass(frozen=True)
class Doomed:
    """A folder that may be deleted."""

    category: Category
    """An artifact that no run reaches; a folder without a manifest; a writer's leftover; data that broke their
    contract."""
    kind: str
    """Kind of an artifact; `dropped` if only its manifest was kept; else the category."""
    folder: StoredFolder
    """The folder."""


@dataclass(frozen=True)
class Garbage:
    """What may be deleted and what is kept, and why."""

    doomed: list[Doomed]
    """Folders that may be deleted, by path."""
    kept: list[StoredFolder]
    """Artifacts that a run reaches."""
    young: list[StoredFolder]
    """Folders that no run reaches, younger than the minimum age."""
    quarantined: list[StoredFolder]
    """Quarantined data that is kept."""
    faults: list[Fault]
    """Missing or damaged artifacts that runs need."""
    dropped: list[ArtifactId]
    """Artifacts that runs name, that were not kept, and that can be derived again."""
    running: list[str]
    """Active runs, and those whose state cannot be read."""
    min_age: timedelta
    """Minimum age used."""


def find_garbage(
    location: Location,
    *,
    min_age: timedelta = MIN_AGE,
    quarantine_age: timedelta | None = None,
    now: datetime | None = None,
) -> Garbage:
    """Decide what may be deleted, without changing anything.

    Args:
        location: The store.
        min_age: Anything written more recently is kept.
        quarantine_age: Quarantined data older than this may be deleted; None: all of it is kept.
        now: The current time, in UTC; None: by this machine's clock.

    Raises:
        StoreError: If there are no runs at all, so that everything would be deleted.
        ArtifactDamagedError: If a run's records cannot be read.
    """
    now = now or datetime.now(UTC)
    store = Reachability(location)
    if not store.roots:
        raise StoreError(
            f"there are no runs in {location.name}, so all of its {len(store.inventory.artifacts)} artifacts would be "
            "deleted. If you want that, delete the folder itself; if not, find out what happened to its folder 'runs'"
        )
    reaches = list(store.of_all().values())
    reached = {key for reach in reaches for key in reach.keys}
    kept = [folder for artifact, folder in store.inventory.artifacts.items() if artifact.key in reached]
    candidates = [
        *(Doomed("artifact", a.kind, f) for a, f in store.inventory.artifacts.items() if a.key not in reached),
        *(Doomed("unfinished", "dropped", f) for a, f in store.inventory.dropped.items() if a.key not in reached),
        *(Doomed("unfinished", "unfinished", f) for a, f in store.inventory.unfinished.items() if a.key not in reached),
        *(Doomed("unfinished", "unfinished", folder) for folder in _lost_races(store, reaches, location)),
        *(Doomed("temporary", "temporary", folder) for folder in store.inventory.temporary),
    ]
    old = [doomed for doomed in candidates if _age(doomed.folder, now) >= min_age]
    young = [doomed.folder for doomed in candidates if _age(doomed.folder, now) < min_age]
    quarantine = store.inventory.quarantine
    expired = [f for f in quarantine if quarantine_age is not None and _age(f, now) >= quarantine_age]
    doomed = old + [Doomed("quarantine", "quarantine", folder) for folder in expired]
    return Garbage(
        doomed=sorted(doomed, key=lambda doomed: doomed.folder.path),
        kept=kept,
        young=young,
        quarantined=[folder for folder in quarantine if folder not in expired],
        faults=_unique(reaches),
        dropped=sorted({artifact for reach in reaches for artifact in reach.dropped}),
        running=[run for run in Runs(location).names() if _may_be_running(Runs(location), run)],
        min_age=min_age,
    )


def delete_garbage(
    location: Location,
    garbage: Garbage,
    *,
    should_ignore_faults: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Delete garbage.

    Args:
        location: The store.
        garbage: From `find_garbage`.
        should_ignore_faults: Delete even if runs need missing or damaged artifacts.
        on_progress: Called with the number of folders deleted and the total.

    Raises:
        StoreError: If runs need missing or damaged artifacts, whose inputs would count as unreached. If the minimum age
            is short and a run is active, or a run has named something of it meanwhile. If the store cannot be written.
    """
    _refuse_what_is_unsafe(location, garbage, should_ignore_faults)
    with ThreadPoolExecutor(NUM_REQUESTS) as pool:
        hidden = [item for item in pool.map(lambda doomed: _hide(location, doomed), garbage.doomed) if item]
        for done, _ in enumerate(pool.map(lambda item: _delete_files(location, *item), hidden), start=1):
            on_progress(done, len(hidden))


def _refuse_what_is_unsafe(location: Location, garbage: Garbage, should_ignore_faults: bool) -> None:
    if garbage.faults and not should_ignore_faults:
        raise StoreError(
            f"nothing was deleted from {location.name}: artifacts that its runs need are missing or damaged, and "
            f"their inputs would count as unreached:\n{describe(garbage.faults)}\n"
            "Restore these (`starpo store copy` from another store, or run the flow again), or delete anyway with "
            "--ignore-missing"
        )
    if garbage.running and garbage.min_age < LEAST_AGE_BESIDE_RUNS:
        raise StoreError(
            f"nothing was deleted from {location.name}: {', '.join(garbage.running)} is running there, and may not "
            "have recorded yet what it stored in the last hour; wait until it ends, or give --min-age 1h or more"
        )
    named = named_keys(read_roots(location))
    if any(doomed.folder.path.rpartition("/")[2] in named for doomed in garbage.doomed):
        raise StoreError(
            f"nothing was deleted from {location.name}: a run has just begun to use some of it; run the same again"
        )


def _lost_races(store: Reachability, reaches: Iterable[Reach], location: Location) -> list[StoredFolder]:
    """Return attempts beside an artifact's own files, of writers that were killed or lost the race; object storage
    only."""
    folders = {}
    for artifact, manifest in (pair for reach in reaches for pair in reach.artifacts.items()):
        folder = store.inventory.artifacts[artifact]
        own_files = {f"{folder.path}/{name}" for name in (MANIFEST_NAME, *(entry.path for entry in manifest.files))}
        for attempt, group in itertools.groupby(folder.files, lambda file: file.path.split("/")[2]):
            files = tuple(group)
            if location.is_attempt(f"{attempt}/") and not any(file.path in own_files for file in files):
                path = f"{folder.path}/{attempt}"
                folders[path] = StoredFolder(path, files, max(file.modified for file in files))
    return list(folders.values())


def _hide(location: Location, doomed: Doomed) -> tuple[str, list[str]] | None:
    """Hide an artifact from readers, atomically; None if it has changed since it was found.

    A process that makes the artifact again meanwhile is not disturbed, and its files are not touched.

    Returns:
        Current path of the folder, and the ends of the paths of the files that are left in it; empty for a file itself.
    """
    path = doomed.folder.path
    ends = [file.path.removeprefix(path) for file in doomed.folder.files]
    if doomed.category in ("temporary", "quarantine"):
        return path, ends
    expected = MANIFEST_NAME if doomed.category == "artifact" else DROPPED_NAME if doomed.kind == "dropped" else ""
    if next((name for name in (MANIFEST_NAME, DROPPED_NAME) if name in location.names(path)), "") != expected:
        return None
    place = location.hide(path, expected)
    if place is None:
        return None
    return place, [end for end in ends if place != path or end != f"/{expected}"]


def _delete_files(location: Location, place: str, ends: Iterable[str]) -> None:
    location.delete(place + end for end in ends)
    location.remove_empty(place)


def _may_be_running(runs: Runs, run: str) -> bool:
    try:
        return runs.is_running(run)
    except ArtifactDamagedError:
        return True


def _age(folder: StoredFolder, now: datetime) -> timedelta:
    return now - folder.modified


def _unique(reaches: Sequence[Reach]) -> list[Fault]:
    return list({fault.artifact: fault for reach in reaches for fault in reach.faults}.values())
