"""Integrity check of a whole store: every manifest is checked and every file hashed, in place.

Inventory -> manifests, files, seals of records -> Verification

It does not check whether the content is right: `ragen verify` recomputes a run.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from starpo.ragen.core.errors import ArtifactDamagedError, StoreError, first_line
from starpo.ragen.store.artifacts.artifacts import Artifacts
from starpo.ragen.store.keeping.inventory import ArtifactId
from starpo.ragen.store.keeping.reachability import Reachability, Roots
from starpo.ragen.store.records.runs import RECORD_ADVICE, Runs
from starpo.ragen.store.records.studies import SWEEPS, named_cells, sweep_names
from starpo.ragen.store.remote.location import NUM_TRANSFERS, Location


@dataclass(frozen=True)
class Damage:
    """Something that is not what was written."""

    place: str
    """Path relative to the store."""
    what: str
    """What is wrong."""
    runs: list[str]
    """Runs that need it."""


@dataclass(frozen=True)
class Verification:
    """Result of a check."""

    num_artifacts: int
    """Number of artifacts checked."""
    size_bytes: int
    """Their size."""
    damages: list[Damage]
    """Sorted by place."""


def verify_store(
    location: Location, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Verification:
    """Check every artifact, and that everything a run needs exists.

    Args:
        location: The store; it is only read.
        on_progress: Called with the bytes done and the total bytes.

    Raises:
        StoreError: If it is empty or cannot be read.
    """
    roots, damages = _readable_roots(location)
    store = Reachability(location, roots)
    reaches = store.of_all()
    folders = store.inventory.artifacts
    users: dict[ArtifactId, list[str]] = {}
    for run, reach in reaches.items():
        for artifact in (*reach.artifacts, *(fault.artifact for fault in reach.faults)):
            users.setdefault(artifact, []).append(run)
    total, done = sum(folder.size_bytes for folder in folders.values()), 0
    artifacts = Artifacts(location)
    with ThreadPoolExecutor(NUM_TRANSFERS) as pool:
        found = pool.map(lambda artifact: _faults(artifacts, artifact), folders)
        for (artifact, folder), faults in zip(folders.items(), found, strict=True):
            damages += [Damage(str(artifact), what, users.get(artifact, [])) for what in faults]
            done += folder.size_bytes
            on_progress(done, total)
    missing = {
        fault.artifact: Damage(str(fault.artifact), f"{fault.what}; needed by {fault.named_by}", users[fault.artifact])
        for reach in reaches.values()
        for fault in reach.faults
        if fault.artifact not in folders
    }
    return Verification(len(folders), total, sorted([*damages, *missing.values()], key=lambda damage: damage.place))


def _readable_roots(location: Location) -> tuple[Roots, list[Damage]]:
    runs, roots, damages = Runs(location), {}, []
    for name in runs.names():
        try:
            if runs.find(name) is not None:
                seals = runs.seals(name)
                damages += [
                    Damage(f"runs/{name}/{path}", f"{what}. {RECORD_ADVICE}", [name])
                    for path, what in seals.broken.items()
                ]
            roots[name] = runs.iterations(name)
        except ArtifactDamagedError as error:
            damages.append(Damage(f"runs/{name}", first_line(error), [name]))
    for name in sweep_names(location):
        place = f"{SWEEPS}/{name}"
        try:
            roots[place] = {0: named_cells(location, name)}
        except ArtifactDamagedError as error:
            damages.append(Damage(place, first_line(error), [place]))
    return roots, damages


def _faults(artifacts: Artifacts, artifact: ArtifactId) -> list[str]:
    try:
        return artifacts.faults(artifacts.manifest(*artifact))
    except StoreError as error:
        return [error.what if isinstance(error, ArtifactDamagedError) else first_line(error)]
