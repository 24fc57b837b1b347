"""Garbage collection: artifacts that no run reaches, and leftovers of killed writers, once they are old enough.

    find_garbage: Reachability -> Garbage        delete_garbage: manifests first -> look again -> files

A run may be about to name an artifact that no run names yet. Therefore everything younger than the minimum age is kept,
and between removing the manifests and deleting the files the records are read again: artifacts that a run has named
meanwhile are restored. A killed deletion leaves folders without a manifest, which are not artifacts and are removed by
the next one.
"""

import contextlib
import itertools
import re
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from pydantic import ValidationError

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.artifacts.artifacts import DROPPED_NAME
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
from starpo.ragen.store.remote.location import NUM_REQUESTS, Location
from starpo.schemas.manifest import MANIFEST_NAME, Manifest

MIN_AGE = timedelta(days=1)
"""How long an artifact that no run names is kept."""
LEAST_AGE_BESIDE_RUNS = timedelta(hours=1)
"""Smallest minimum age allowed while a run is active, which may take this long between storing and naming an
artifact."""
SETTLE_S = 2.0
"""Pause between removing manifests and checking whether an active run has named one of them."""

_ATTEMPT = re.compile(r"[0-9a-f]{12}")

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
    """Active runs."""
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
        running=[run for run in Runs(location).names() if Runs(location).is_running(run)],
        min_age=min_age,
    )


def delete_garbage(
    location: Location,
    garbage: Garbage,
    *,
    should_ignore_faults: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Doomed]:
    """Delete garbage.

    Args:
        location: The store.
        garbage: From `find_garbage`.
        should_ignore_faults: Delete even if runs need missing or damaged artifacts.
        on_progress: Called with the number of folders deleted and the total.

    Returns:
        Artifacts that were restored because a run named them meanwhile.

    Raises:
        StoreError: If runs need missing or damaged artifacts, whose inputs would count as unreached. If the minimum age
            is short and a run is active. If the store cannot be written. Nothing is lost by running it again.
    """
    _refuse_what_is_unsafe(location, garbage, should_ignore_faults)
    hidden: list[_Hidden] = []
    try:
        with ThreadPoolExecutor(NUM_REQUESTS) as pool:
            list(pool.map(lambda doomed: _hide(location, doomed, hidden), garbage.doomed))
        if garbage.running:
            time.sleep(SETTLE_S)
        named = _closure(named_keys(read_roots(location)), hidden)
    except BaseException:
        for item in hidden:
            _show_again(location, item)
        raise
    restored = [item for item in hidden if item.manifest and _key(item.doomed) in named]
    for item in restored:
        _show_again(location, item)
    going = [item for item in hidden if item not in restored]
    with ThreadPoolExecutor(NUM_REQUESTS) as pool:
        for done, _ in enumerate(pool.map(lambda item: _delete_files(location, item), going), start=1):
            on_progress(done, len(going))
    return [item.doomed for item in restored]


@dataclass(frozen=True)
class _Hidden:
    """A folder that readers no longer see and whose files still exist."""

    doomed: Doomed
    place: str
    """Current path of the files."""
    name: str = ""
    """Name of the manifest file, which a dropped artifact has too; empty for anything that is not an artifact."""
    manifest: bytes = b""
    """Content of that file."""


def _refuse_what_is_unsafe(location: Location, garbage: Garbage, should_ignore_faults: bool) -> None:
    if garbage.faults and not should_ignore_faults:
        raise StoreError(
            f"nothing was deleted from {location.name}: artifacts that its runs need are missing or damaged, and "
            f"their inputs would count as unreached:\n{describe(garbage.faults)}\n"
            "Restore these (`ragen store copy` from another store, or run the flow again), or delete anyway with "
            "--ignore-missing"
        )
    if garbage.running and garbage.min_age < LEAST_AGE_BESIDE_RUNS:
        raise StoreError(
            f"nothing was deleted from {location.name}: {', '.join(garbage.running)} is running there, and may not "
            "have recorded yet what it stored in the last hour; wait until it ends, or give --min-age 1h or more"
        )


def _lost_races(store: Reachability, reaches: Iterable[Reach], location: Location) -> list[StoredFolder]:
    """Return attempts beside an artifact's own files, of writers that were killed or lost the race; object storage
    only."""
    if location.local is not None:
        return []
    found = {}
    for artifact, manifest in (pair for reach in reaches for pair in reach.artifacts.items()):
        folder = store.inventory.artifacts[artifact]
        own = {f"{folder.path}/{name}" for name in (MANIFEST_NAME, *(entry.path for entry in manifest.files))}
        for attempt, group in itertools.groupby(folder.files, lambda file: file.path.split("/")[2]):
            files = tuple(group)
            if _ATTEMPT.fullmatch(attempt) and not any(file.path in own for file in files):
                path = f"{folder.path}/{attempt}"
                found[path] = StoredFolder(path, files, max(file.modified for file in files))
    return list(found.values())


def _hide(location: Location, doomed: Doomed, hidden: list[_Hidden]) -> None:
    """Hide an artifact atomically and add it to `hidden`; one that has changed since it was found is kept.

    A local folder is moved away completely: a process that makes the artifact again meanwhile finds the place free, and
    its files are not touched. On object storage its files have names of their own.
    """
    path = place = doomed.folder.path
    if doomed.category in ("temporary", "quarantine"):
        hidden.append(_Hidden(doomed, path))
        return
    expected = MANIFEST_NAME if doomed.category == "artifact" else DROPPED_NAME if doomed.kind == "dropped" else ""
    if location.local is not None:
        place = f"tmp/{uuid.uuid4().hex}"
        if _manifest_in(location, path)[0] != expected or not location.move(path, place):
            return
    name, manifest = _manifest_in(location, place)
    found = _Hidden(doomed, place, name, manifest)
    if name != expected:  # just made again
        _show_again(location, found)
        return
    if location.local is None:
        location.delete([f"{path}/{name}"] if name else [])
    hidden.append(found)


def _manifest_in(location: Location, place: str) -> tuple[str, bytes]:
    """Return name and content of an artifact's manifest file; both empty if there is none."""
    for name in (MANIFEST_NAME, DROPPED_NAME):
        with contextlib.suppress(FileNotFoundError):
            return name, location.read(f"{place}/{name}")
    return "", b""


def _show_again(location: Location, hidden: _Hidden) -> None:
    path = hidden.doomed.folder.path
    if hidden.place == path:
        if hidden.manifest:
            location.create(f"{path}/{hidden.name}", hidden.manifest)
    elif not location.move(hidden.place, path):  # made again meanwhile
        _delete_files(location, hidden)


def _delete_files(location: Location, hidden: _Hidden) -> None:
    path = hidden.doomed.folder.path
    # The manifest of an artifact that was not moved is already deleted: a manifest found now belongs to a new artifact.
    is_in_place = hidden.place == path and hidden.doomed.category in ("artifact", "unfinished")
    names = (file.path.removeprefix(path) for file in hidden.doomed.folder.files)
    location.delete(hidden.place + name for name in names if not (is_in_place and name == f"/{hidden.name}"))
    location.remove_empty(hidden.place)


def _closure(named: set[str], hidden: Iterable[_Hidden]) -> set[str]:
    """Return the named keys and, through the hidden artifacts, everything they were made from."""
    inputs: dict[str, set[str]] = {}
    for item in hidden:
        with contextlib.suppress(ValidationError):  # damaged, or not an artifact
            manifest = Manifest.model_validate_json(item.manifest)
            inputs.setdefault(manifest.key, set()).update(manifest.inputs.values())
    reached, wave = set(named), set(named)
    while wave:
        wave = {key for source in wave for key in inputs.get(source, ())} - reached
        reached |= wave
    return reached


def _key(doomed: Doomed) -> str:
    return doomed.folder.path.rsplit("/", 1)[-1]


def _age(folder: StoredFolder, now: datetime) -> timedelta:
    return now - folder.modified


def _unique(reaches: Sequence[Reach]) -> list[Fault]:
    return list({fault.artifact: fault for reach in reaches for fault in reach.faults}.values())
