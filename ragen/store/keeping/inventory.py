"""What lies in a store, by listing it: artifacts, what killed writers left, quarantine. Reads no file.

    <store>/<kind>/<key>/... -> Inventory -> reachability -> retention, usage, integrity, copying

A folder is taken for an artifact's only where its name is a key (32 hexadecimal digits): whatever else someone keeps
beside the artifacts is not looked at, and so never deleted.
"""

import itertools
import re
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.artifacts.artifacts import DROPPED_NAME
from starpo.ragen.store.artifacts.keys import KEY_DIGITS
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.remote.location import Location, StoredFile
from starpo.schemas.manifest import MANIFEST_NAME

_KEY = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}")
_TEMPORARY = re.compile(r"[0-9a-f]{32}|incomplete-.+")
_TEMPORARY_RECORD = re.compile(r"\..+\.json\.[0-9a-f]{32}")


class ArtifactId(NamedTuple):
    """Which artifact."""

    kind: str
    """Dataset kind, `checkpoint`, or another folder's."""
    key: str
    """Of the work that made it."""

    def __str__(self) -> str:
        return f"{self.kind}/{self.key}"


@dataclass(frozen=True)
class StoredFolder:
    """A folder, or a single file, and all that is below it."""

    path: str
    """Relative to the store."""
    files: tuple[StoredFile, ...]
    """By path."""
    modified: datetime | None
    """When the newest of its files was written, in UTC; of an empty folder: when it was made, where that is known."""

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class Inventory:
    """A store's contents at one moment."""

    artifacts: dict[ArtifactId, StoredFolder]
    """Folders with a manifest."""
    dropped: dict[ArtifactId, StoredFolder]
    """Folders of artifacts that were dropped, and of which the manifest was kept aside."""
    unfinished: dict[ArtifactId, StoredFolder]
    """Folders of artifacts without any manifest: half uploaded, or half deleted."""
    temporary: list[StoredFolder]
    """Artifacts and records in the making, and what was set aside: of writers at work, or killed."""
    quarantine: list[StoredFolder]
    """Datasets that break their contract."""
    runs: list[str]
    """Names of the runs' folders."""


def take_inventory(location: Location) -> Inventory:
    """List a store.

    Raises:
        StoreError: If there is neither an artifact nor a run, which is more likely a wrong address than an empty store;
            or if it cannot be listed.
    """
    artifacts: dict[ArtifactId, StoredFolder] = {}
    dropped: dict[ArtifactId, StoredFolder] = {}
    unfinished: dict[ArtifactId, StoredFolder] = {}
    for kind in filter(_is_kind, location.names("")):
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
    """Name -> each folder directly in this one; empty ones where storage knows of them."""
    files = (file for file in location.files(parent) if file.path.count("/") > 1)
    found = {
        name: _folder(f"{parent}/{name}", tuple(group))
        for name, group in itertools.groupby(files, key=lambda file: file.path.split("/")[1])
    }
    for name in location.names(parent) if parent == "tmp" else ():
        if name not in found and (modified := location.modified(f"{parent}/{name}")):
            found[name] = StoredFolder(f"{parent}/{name}", (), modified)
    return found


def _is_kind(name: str) -> bool:
    try:
        checked_name(name, "kind")
    except StoreError:
        return False
    return True


def _folder(path: str, files: tuple[StoredFile, ...]) -> StoredFolder:
    return StoredFolder(path, files, max(file.modified for file in files))


def _temporary_records(location: Location) -> list[StoredFolder]:
    files = location.files("runs")
    return [_folder(file.path, (file,)) for file in files if _TEMPORARY_RECORD.fullmatch(file.path.rsplit("/", 1)[-1])]
