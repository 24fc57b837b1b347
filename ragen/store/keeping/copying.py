"""Copying a run with everything it needs to another store.

    source: Reachability -> artifacts -> target, each verified at its destination -> records -> run.json

Copying again copies only what is missing; a killed copy leaves complete artifacts and no run. Artifacts keep their
keys, digests and provenance; their manifests differ only in the paths of the files.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from starpo.ragen.core.errors import ArtifactMissingError, StoreError
from starpo.ragen.store.artifacts.artifacts import Artifacts
from starpo.ragen.store.keeping.inventory import ArtifactId
from starpo.ragen.store.keeping.reachability import Reach, Reachability, describe
from starpo.ragen.store.records.runs import Runs
from starpo.ragen.store.remote.committing import DROPPED_NAME
from starpo.ragen.store.remote.location import NUM_REQUESTS, NUM_TRANSFERS, Location
from starpo.schemas.manifest import MANIFEST_NAME, Manifest


@dataclass(frozen=True)
class Copy:
    """Result of copying a run."""

    run: str
    """Name of the run."""
    num_copied: int
    """Artifacts that were copied."""
    bytes_copied: int
    """Size of their files."""
    num_present: int
    """Artifacts that existed already."""
    bytes_present: int
    """Size of their files."""
    num_dropped: int
    """Artifacts that the source did not keep either, and that can be derived again."""
    is_running: bool
    """Whether the run is still running. If so, only what it had recorded was copied; copying again adds the rest."""


def copy_run(
    source: Location,
    run: str,
    target: Location,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Copy:
    """Copy a run.

    Args:
        source: The store that contains it; it is only read.
        run: Its name.
        target: The other store.
        on_progress: Called with the bytes copied and the total bytes to copy.

    Raises:
        StoreError: If there is no such run; if the target has another run of that name, other content for the same
            work, or cannot be written; if a process is working on that run there.
        ArtifactMissingError: If an artifact that the run needs is missing; the message names it.
        ArtifactDamagedError: If an artifact or a record is not what was written.
    """
    if target.name == source.name or target.address == source.address:
        raise StoreError(f"{target.name} is the store that run {run} is in; give the address of another one")
    runs, adopting = Runs(source), Runs(target)
    record, state = runs.get(run), runs.state(run)  # before the records: a run may end while it is copied
    iterations = runs.records(run)
    adopting.merged(record, iterations)
    runs.check_sealed(run)
    if adopting.find(run) is not None:
        adopting.check_sealed(run)
    is_running = runs.is_running(run)
    stages = {iteration: record.stages for iteration, record in iterations.items()}
    reach = Reachability(source, {run: stages}).of(run)
    if reach.faults:
        raise ArtifactMissingError(
            f"run {run} cannot be copied whole from {source.name}: artifacts that it needs are missing or damaged:\n"
            f"{describe(reach.faults)}\nRestore these, or run the flow again, which recreates them; nothing was copied"
        )
    with adopting.hold(run):
        waiting = _absent(reach, target)
        _transfer(waiting, Artifacts(source), Artifacts(target), on_progress)
        _copy_dropped(reach, source, target)
        sizes = _sizes(reach, target)
        for lost in (artifact for artifact in reach.artifacts if f"{artifact}/{MANIFEST_NAME}" not in sizes):
            raise StoreError(f"{lost} was deleted from {target.name} while {run} was copied; copy it again")
        adopting.adopt(record, iterations, state)
    present = {artifact: manifest for artifact, manifest in reach.artifacts.items() if artifact not in waiting}
    return Copy(
        run,
        num_copied=len(waiting),
        bytes_copied=sum(map(_size, waiting.values())),
        num_present=len(present),
        bytes_present=sum(map(_size, present.values())),
        num_dropped=len(reach.dropped),
        is_running=is_running,
    )


def _absent(reach: Reach, target: Location) -> dict[ArtifactId, Manifest]:
    """Return what the target lacks; check that what it has is the same and has all its files."""
    sizes = _sizes(reach, target)
    waiting = {artifact: m for artifact, m in reach.artifacts.items() if f"{artifact}/{MANIFEST_NAME}" not in sizes}
    artifacts = Artifacts(target)

    def check(manifest: Manifest) -> None:
        kind, key = manifest.kind, manifest.key
        there = artifacts.manifest(kind, key)
        if there.content_digest != manifest.content_digest:
            raise StoreError(
                f"{target.name} has {kind}/{key} with other content (digest {there.content_digest[:12]}..., here "
                f"{manifest.content_digest[:12]}...): the same work was done twice, on machines that disagree. Both "
                "are untouched; copy into another store"
            )
        for entry in there.files:
            size = sizes.get(f"{kind}/{key}/{entry.path}")
            if size != entry.size_bytes:
                fault = "is missing" if size is None else f"has {size} bytes, expected {entry.size_bytes}"
                raise artifacts.damaged(kind, key, f"{entry.name} {fault}")

    with ThreadPoolExecutor(NUM_REQUESTS) as pool:
        list(pool.map(check, (m for artifact, m in reach.artifacts.items() if artifact not in waiting)))
    return waiting


def _sizes(reach: Reach, target: Location) -> dict[str, int]:
    """Return path -> bytes of all files of the kinds that the run needs: one listing per kind costs less than one per
    artifact."""
    kinds = sorted({artifact.kind for artifact in reach.artifacts})
    with ThreadPoolExecutor(NUM_REQUESTS) as pool:
        return {file.path: file.size_bytes for files in pool.map(target.files, kinds) for file in files}


def _transfer(
    waiting: dict[ArtifactId, Manifest], source: Artifacts, target: Artifacts, on_progress: Callable[[int, int], None]
) -> None:
    total, done = sum(map(_size, waiting.values())), 0
    with ThreadPoolExecutor(NUM_TRANSFERS) as pool:
        for manifest in pool.map(lambda manifest: target.copy_from(source, manifest), waiting.values()):
            done += _size(manifest)
            on_progress(done, total)


def _copy_dropped(reach: Reach, source: Location, target: Location) -> None:
    """Copy the manifests of dropped artifacts, which prove that a derived replacement is the original."""
    artifacts = Artifacts(target)
    for (kind, key), manifest in reach.dropped.items():
        if manifest is not None and not artifacts.has(kind, key):
            path = f"{kind}/{key}/{DROPPED_NAME}"
            target.create(path, source.read(path))


def _size(manifest: Manifest) -> int:
    return sum(entry.size_bytes for entry in manifest.files)
