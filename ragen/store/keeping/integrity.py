"""Integrity check of a whole store: every manifest is checked, every file and all rows hashed, in place.

Inventory -> manifests, files, rows, seals of records -> Verification

Digests tell what has changed since it was recorded, unless somebody made them anew. Whether results follow from their
inputs is not checked: `starpo verify` recomputes a run.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from starpo.ragen.core.errors import ArtifactDamagedError, StoreError, first_line
from starpo.ragen.store.artifacts.artifacts import Artifacts
from starpo.ragen.store.artifacts.datasets import stored_batches
from starpo.ragen.store.keeping.inventory import ArtifactId
from starpo.ragen.store.keeping.reachability import Reachability, Roots, readable_roots
from starpo.ragen.store.records.runs import RECORD_ADVICE, Runs
from starpo.ragen.store.records.studies import SWEEPS
from starpo.ragen.store.remote.location import NUM_TRANSFERS, Location
from starpo.schemas.datasets import DATASETS
from starpo.schemas.digest import content_digest
from starpo.schemas.manifest import Manifest


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
class IntegrityCheck:
    """Result of a check."""

    num_artifacts: int
    """Number of artifacts checked."""
    size_bytes: int
    """Their size."""
    damages: list[Damage]
    """Sorted by place."""


def verify_store(
    location: Location, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> IntegrityCheck:
    """Check every artifact, and that everything a run needs exists.

    Args:
        location: The store; it is only read.
        on_progress: Called with the bytes done and the total bytes.

    Raises:
        StoreError: If it is empty or cannot be read.
    """
    roots, damages = _checked_roots(location)
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
        outcomes = pool.map(lambda artifact: _faults(artifacts, artifact), folders)
        for (artifact, folder), faults in zip(folders.items(), outcomes, strict=True):
            damages += [Damage(str(artifact), what, users.get(artifact, [])) for what in faults]
            done += folder.size_bytes
            on_progress(done, total)
    for artifact in store.inventory.dropped:
        try:
            artifacts.lasting_manifest(*artifact)
        except ArtifactDamagedError as error:
            damages.append(Damage(str(artifact), error.what, users.get(artifact, [])))
    missing = {
        fault.artifact: Damage(str(fault.artifact), f"{fault.what}; needed by {fault.named_by}", users[fault.artifact])
        for reach in reaches.values()
        for fault in reach.faults
        if fault.artifact not in folders and fault.artifact not in store.inventory.dropped
    }
    return IntegrityCheck(len(folders), total, sorted([*damages, *missing.values()], key=lambda damage: damage.place))


def _checked_roots(location: Location) -> tuple[Roots, list[Damage]]:
    runs = Runs(location)
    roots, faults = readable_roots(location)
    damages = [Damage(_folder(place), first_line(error), [place]) for place, error in faults.items()]
    for name in runs.names():
        try:
            broken = runs.seals(name).broken if runs.find(name) is not None else {}
        except StoreError as error:
            damages += [Damage(_folder(name), first_line(error), [name])] if name not in faults else []
        else:
            damages += [
                Damage(f"runs/{name}/{path}", f"{what}. {RECORD_ADVICE}", [name]) for path, what in broken.items()
            ]
    return roots, damages


def _folder(place: str) -> str:
    return place if place.startswith(f"{SWEEPS}/") else f"runs/{place}"


def _faults(artifacts: Artifacts, artifact: ArtifactId) -> list[str]:
    try:
        manifest = artifacts.manifest(*artifact)
        return artifacts.faults(manifest) or _row_faults(artifacts, manifest)
    except StoreError as error:
        return [error.what if isinstance(error, ArtifactDamagedError) else first_line(error)]


def _row_faults(artifacts: Artifacts, manifest: Manifest) -> list[str]:
    """Compare the rows of a dataset, whose files are as recorded, with its content digest."""
    if manifest.dataset_version is None:
        return []
    try:
        batches = list(stored_batches(artifacts.files_of(manifest)))
        digest = content_digest(batches, batches[0].schema if batches else DATASETS[manifest.kind].schema)
    except (pa.ArrowException, OSError) as error:
        return [f"its rows cannot be read ({first_line(error)})"]
    return [] if digest == manifest.content_digest else ["the content digest in its manifest is not that of its rows"]
