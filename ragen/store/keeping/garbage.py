"""What may go: artifacts that no run reaches, and what killed writers left, once they are old enough.

    find_garbage: Reachability -> Garbage        delete_garbage: manifests first -> look again -> files

A run may be about to name what no run names yet: what is younger than the minimum age stays, and between taking the
manifests away and deleting the files the records are read again; what a run has named meanwhile is put back. A
deletion that is killed leaves folders without a manifest, which are no artifacts, and which the next one sweeps.
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
    run_names,
)
from starpo.ragen.store.records.runs import Runs
from starpo.ragen.store.remote.location import NUM_REQUESTS, Location
from starpo.schemas.manifest import MANIFEST_NAME, Manifest

MIN_AGE = timedelta(days=1)
"""How long an artifact that no run names is kept."""
LEAST_AGE_BESIDE_RUNS = timedelta(hours=1)
"""No shorter minimum age is taken while a run is at work: it may store for so long before it names."""
SETTLE_S = 2.0
"""Pause between taking manifests away and looking whether a run at work has named one of them."""

_ATTEMPT = re.compile(r"[0-9a-f]{12}")

Category = Literal["artifact", "unfinished", "temporary", "quarantine"]


@dataclass(frozen=True)
class Doomed:
    """A folder that may go."""

    category: Category
    """Artifact that no run reaches; no artifact for want of a manifest; left by a writer; data that broke their
    contract."""
    kind: str
    """Kind of an artifact; `dropped` where only its manifest was kept; else the category."""
    folder: StoredFolder
    """What lies there."""


@dataclass(frozen=True)
class Garbage:
    """What may go and what stays, and why."""

    doomed: list[Doomed]
    """By path."""
    kept: list[StoredFolder]
    """Artifacts that a run reaches."""
    young: list[StoredFolder]
    """What no run reaches, and is younger than the minimum age."""
    quarantined: list[StoredFolder]
    """Quarantine that stays."""
    faults: list[Fault]
    """What runs need and is missing or damaged."""
    dropped: list[ArtifactId]
    """What runs name, was not kept, and can be made again."""
    running: list[str]
    """Runs at work."""
    min_age: timedelta
    """By which this was decided."""


def find_garbage(
    location: Location,
    *,
    min_age: timedelta = MIN_AGE,
    quarantine_age: timedelta | None = None,
    now: datetime | None = None,
) -> Garbage:
    """Decide what may go. Changes nothing.

    Args:
        location: The store.
        min_age: What was written more recently stays.
        quarantine_age: Quarantine older than this may go; None: it stays.
        now: The present, in UTC; None: by this machine's clock.

    Raises:
        StoreError: If there is no run at all, so that everything would go.
        ArtifactDamagedError: If a run's records cannot be read.
    """
    now = now or datetime.now(UTC)
    store = Reachability(location)
    if not store.roots:
        raise StoreError(
            f"there are no runs in {location.name}, so all of its {len(store.inventory.artifacts)} artifacts would go. "
            "If that is what you want, delete the folder itself; if not, see what became of its folder 'runs'"
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
        running=[run for run in run_names(location) if Runs(location).is_running(run)],
        min_age=min_age,
    )


def delete_garbage(
    location: Location,
    garbage: Garbage,
    *,
    should_ignore_faults: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Doomed]:
    """Delete what may go.

    Args:
        location: The store.
        garbage: From `find_garbage`.
        should_ignore_faults: Delete although runs need what is missing or damaged?
        on_progress: Called with the number of folders deleted and to delete.

    Returns:
        What was put back because a run named it meanwhile.

    Raises:
        StoreError: If runs need what is missing or damaged: what lies behind it would be taken for unreached. If the
            minimum age is short and a run is at work. If the store cannot be written. Nothing is lost by running it
            again.
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
    """Something that no reader sees any more and whose files are still there."""

    doomed: Doomed
    place: str
    """Where the files are now."""
    name: str = ""
    """Of the file with its manifest, which an artifact that was dropped has too; empty for what is no artifact."""
    manifest: bytes = b""
    """What was in that file."""


def _refuse_what_is_unsafe(location: Location, garbage: Garbage, should_ignore_faults: bool) -> None:
    if garbage.faults and not should_ignore_faults:
        raise StoreError(
            f"nothing was deleted from {location.name}: its runs need what is missing or damaged, and what that was "
            f"made from would be taken for unreached:\n{describe(garbage.faults)}\n"
            "Restore these (`ragen store copy` from another store, or run the flow again), or delete all the same with "
            "--ignore-missing"
        )
    if garbage.running and garbage.min_age < LEAST_AGE_BESIDE_RUNS:
        raise StoreError(
            f"nothing was deleted from {location.name}: {', '.join(garbage.running)} is running there, and may be "
            "about to name what it stored less than an hour ago; wait for its end, or give --min-age 1h or more"
        )


def _lost_races(store: Reachability, reaches: Iterable[Reach], location: Location) -> list[StoredFolder]:
    """Attempts beside an artifact's own files, of writers that were killed or came second; on object storage only."""
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
    """Make an artifact none in one step and add it to the hidden; what is not what it was when it was found stays.

    A local folder is moved away whole: whoever makes the artifact again meanwhile finds the place free, and what they
    write there is not touched. On object storage their files have names of their own.
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
    if name != expected:  # it was made again in this moment
        _show_again(location, found)
        return
    if location.local is None:
        location.delete([f"{path}/{name}"] if name else [])
    hidden.append(found)


def _manifest_in(location: Location, place: str) -> tuple[str, bytes]:
    """The name of the file with an artifact's manifest, and what is in it; both empty where there is none."""
    for name in (MANIFEST_NAME, DROPPED_NAME):
        with contextlib.suppress(FileNotFoundError):
            return name, location.read(f"{place}/{name}")
    return "", b""


def _show_again(location: Location, hidden: _Hidden) -> None:
    path = hidden.doomed.folder.path
    if hidden.place == path:
        if hidden.manifest:
            location.create(f"{path}/{hidden.name}", hidden.manifest)
    elif not location.move(hidden.place, path):  # it was made again meanwhile
        _delete_files(location, hidden)


def _delete_files(location: Location, hidden: _Hidden) -> None:
    path = hidden.doomed.folder.path
    # The manifest of an artifact in its place is deleted already: one that is there now is that of another.
    is_in_place = hidden.place == path and hidden.doomed.category in ("artifact", "unfinished")
    names = (file.path.removeprefix(path) for file in hidden.doomed.folder.files)
    location.delete(hidden.place + name for name in names if not (is_in_place and name == f"/{hidden.name}"))
    location.remove_empty(hidden.place)


def _closure(named: set[str], hidden: Iterable[_Hidden]) -> set[str]:
    """The named keys and, through the hidden artifacts, all they were made from."""
    inputs: dict[str, set[str]] = {}
    for item in hidden:
        with contextlib.suppress(ValidationError):  # damaged, or no artifact
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
    return now - (folder.modified or now)


def _unique(reaches: Sequence[Reach]) -> list[Fault]:
    return list({fault.artifact: fault for reach in reaches for fault in reach.faults}.values())
