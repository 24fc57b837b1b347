"""Contents of a store, by listing it: artifacts, leftovers of killed writers, quarantine. Reads no file.

    <store>/<kind>/<key>/... -> Inventory -> reachability -> retention, usage, integrity, copying

Only folders whose name is a key (32 hexadecimal digits) count as artifacts: anything else beside the artifacts is
ignored, and so never deleted.
"""

import itertools
import re
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.artifacts.keys import KEY_DIGITS
from starpo.ragen.store.names import is_kind
from starpo.ragen.store.remote.committing import DROPPED_NAME
from starpo.ragen.store.remote.location import Location, StoredFile
from starpo.schemas.manifest import MANIFEST_NAME

_KEY = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}")
_TEMPORARY = re.compile(r"[0-9a-f]{32}|incomplete-.+")
_TEMPORARY_RECORD = re.compile(r"\..+\.json\.[0-9a-f]{32}")


class ArtifactId(NamedTuple):
    """Identity of an artifact."""

    kind: str
    """Dataset kind, `checkpoint`, or the name of another folder."""
    key: str
    """Key of the work that made it."""

    def __str__(self) -> str:
        return f"{self.kind}/{self.key}"


@dataclass(frozen=True)
class StoredFolder:
    """A folder with everything in it, or a single file."""

    path: str
    """Path relative to the store."""
    files: tuple[StoredFile, ...]
    """Sorted by path."""
    modified: datetime
    """Time of the last write to its newest file, in UTC; for an empty folder, its modification time."""

    @property
    def size_bytes(self) -> int:
        """Size of all its files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class Inventory:
    """Contents of a store at one moment."""

    artifacts: dict[ArtifactId, StoredFolder]
    """Folders with a manifest."""
    dropped: dict[ArtifactId, StoredFolder]
    """Folders of dropped artifacts, with the manifest as `dropped.json`."""
    unfinished: dict[ArtifactId, StoredFolder]
    """Artifact folders without any manifest: partially uploaded or deleted."""
    temporary: list[StoredFolder]
    """Unfinished artifacts and records, and folders set aside: of running or killed writers."""
    quarantine: list[StoredFolder]
    """Datasets that break their contract."""
    runs: list[str]
    """Names of the runs' folders."""


def take_inventory(location: Location) -> Inventory:
    """List a store.

    Raises:
        StoreError: If there is neither an artifact nor a run, which more likely means a wrong address than an empty
            store; or if it cannot be listed.
    """
    artifacts: dict[ArtifactId, StoredFolder] = {}
    dropped: dict[ArtifactId, StoredFolder] = {}
    unfinished: dict[ArtifactId, StoredFolder] = {}
    for kind in filter(is_kind, location.names("")):
        for key, folder in _folders(location, kind).items():
            if _KEY.fullmatch(key):
                names = {file.path.removeprefix(f"{folder.path}/") for file in folder.files}
                group = artifacts if MANIFEST_NAME in names else dropped if DROPPED_NAME in names else unfinished
                group[ArtifactId(kind, key)] = folder
    runs = [name for name in location.names("runs") if not name.startswith(".")]
    if not artifacts and not runs:
        raise StoreError(f"there is no artifact and no run in {location.name}: check the store's address")
    staged = [folder for name, folder in _folders(location, "tmp").items() if _TEMPORARY.fullmatch(name)]
    return Inventory(
        artifacts=artifacts,
        dropped=dropped,
        unfinished=unfinished,
        temporary=staged + _temporary_records(location),
        quarantine=list(_folders(location, "quarantine").values()),
        runs=runs,
    )


def _folders(location: Location, parent: str) -> dict[str, StoredFolder]:
    """Return name -> each folder directly in this one; including empty ones in `tmp` if the storage has folders."""
    files = (file for file in location.files(parent) if file.path.count("/") > 1)
    folders = {
        name: _folder(f"{parent}/{name}", tuple(group))
        for name, group in itertools.groupby(files, key=lambda file: file.path.split("/")[1])
    }
    for name in location.names(parent) if parent == "tmp" else ():
        if name not in folders and (modified := location.modified(f"{parent}/{name}")):
            folders[name] = StoredFolder(f"{parent}/{name}", (), modified)
    return folders


def _folder(path: str, files: tuple[StoredFile, ...]) -> StoredFolder:
    return StoredFolder(path, files, max(file.modified for file in files))


def _temporary_records(location: Location) -> list[StoredFolder]:
    files = location.files("runs")
    return [_folder(file.path, (file,)) for file in files if _TEMPORARY_RECORD.fullmatch(file.path.rsplit("/", 1)[-1])]
