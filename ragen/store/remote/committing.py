"""Commit of a staged folder as an artifact: atomic, and one of several writers wins.

local    files and manifest, on disk -> one rename of the folder, refused if the artifact exists
remote   files, under names unique to this attempt -> the manifest, put last and only if there is none
"""

import errno
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.remote.location import NUM_TRANSFERS, Location
from starpo.schemas.manifest import MANIFEST_NAME, Manifest

DROPPED_NAME = "dropped.json"
"""The manifest of a dropped artifact. It only counts if there is no manifest.json."""

_log = logging.getLogger(__name__)


def text_of(manifest: Manifest) -> str:
    """Serialise a manifest as it is stored."""
    return manifest.model_dump_json(indent=2) + "\n"


def sync(path: Path) -> None:
    """Flush a file, or a folder's list of names, to disk, so that a power failure loses no commit."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def commit_locally(root: Path, folder: Path, manifest: Manifest, *, is_dropped: bool = False) -> bool:
    """Make a folder an artifact of a local store.

    Args:
        root: Root folder of the store.
        folder: Folder with the artifact's files; it is moved.
        manifest: From `Artifacts.sealed`.
        is_dropped: Whether the artifact is recorded, never written; the folder is empty then.

    Returns:
        False if another writer was first; the folder is not moved then.

    Raises:
        StoreError: If something keeps recreating the target folder.
    """
    name, files = (DROPPED_NAME, ()) if is_dropped else (MANIFEST_NAME, manifest.files)
    (folder / name).write_text(text_of(manifest), encoding="utf-8")
    written = [folder / name, *(folder / entry.path for entry in files)]
    list(_syncing_threads().map(sync, written))  # concurrently: a file system writes its journal once for all
    sync(folder)
    final = root / manifest.kind / manifest.key
    final.parent.mkdir(parents=True, exist_ok=True)
    aside = None
    for _ in range(2):
        try:
            os.rename(folder, final)  # noqa: PTH104 (refuses a folder that is not empty, which is the point)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if (final / MANIFEST_NAME).exists() or (is_dropped and (final / DROPPED_NAME).exists()):
                return False
            aside = _set_aside(final, root)
        else:
            if aside is not None and (aside / DROPPED_NAME).exists():  # the dropped artifact is restored
                sync(final.parent)
                shutil.rmtree(aside, ignore_errors=True)
            return True
    raise StoreError(f"cannot write {final}: another process keeps creating it; check what else uses this store")


def commit_remotely(
    location: Location,
    folder: Path,
    manifest: Manifest,
    faults: Callable[[Manifest], list[str]],
    *,
    was_dropped: bool,
) -> bool:
    """Make a folder an artifact of a remote store.

    Args:
        location: The store.
        folder: Folder with the artifact's files; it is kept.
        manifest: From `Artifacts.sealed`.
        faults: Checks the uploaded files before the manifest is put.
        was_dropped: Whether a manifest of a dropped artifact may exist; it is deleted.

    Returns:
        False if another writer was first; the uploaded files are deleted then.

    Raises:
        StoreError: If the store did not keep what it received.
    """
    entries, prefix = manifest.files, f"{manifest.kind}/{manifest.key}"
    with ThreadPoolExecutor(NUM_TRANSFERS) as pool:
        sent = [pool.submit(location.upload, folder / e.name, f"{prefix}/{e.path}") for e in entries]
        for upload in sent:
            upload.result()
    if findings := faults(manifest):
        location.delete(f"{prefix}/{entry.path}" for entry in entries)
        raise StoreError(
            f"{location.name.rstrip('/')}/{prefix} was not stored as sent: {findings[0]}; it was removed. Run "
            "the same command again: files that arrived intact are not sent twice"
        )
    if location.create_lasting(f"{prefix}/{MANIFEST_NAME}", text_of(manifest).encode()):
        if was_dropped:
            location.delete([f"{prefix}/{DROPPED_NAME}"])
        return True
    location.delete(f"{prefix}/{entry.path}" for entry in entries)
    return False


def _set_aside(final: Path, root: Path) -> Path:
    """Move a folder without a manifest, which is not an artifact, out of the way without deleting it."""
    aside = root / "tmp" / f"incomplete-{final.parent.name}-{final.name}-{uuid.uuid4().hex}"
    if not (final / DROPPED_NAME).exists():
        _log.warning("%s has no %s, so it is not an artifact; moved to %s", final, MANIFEST_NAME, aside)
    os.rename(final, aside)  # noqa: PTH104
    return aside


@cache
def _syncing_threads() -> ThreadPoolExecutor:
    """Return the shared thread pool; starting threads takes as long as their work."""
    return ThreadPoolExecutor(NUM_TRANSFERS, thread_name_prefix="sync")


os.register_at_fork(after_in_child=_syncing_threads.cache_clear)  # a child process has none of these threads
