"""`Bucket`: the location of a store on S3, or on another remote fsspec file system.

There is no rename: every attempt at an artifact puts its files under a prefix of its own, and the manifest, put last,
makes them the artifact; see `committing`. Artifacts are read from copies on this machine; see `local_cache`.
"""

import os
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.remote import local_cache
from starpo.ragen.store.remote.committing import DROPPED_NAME, commit_remotely, text_of
from starpo.ragen.store.remote.location import StoredFile
from starpo.ragen.store.remote.object_storage import ObjectStorage
from starpo.ragen.store.remote.ranges import RangeFile
from starpo.schemas.manifest import MANIFEST_NAME, Manifest

_ATTEMPT_DIGITS = 12
_ATTEMPT = re.compile(rf"[0-9a-f]{{{_ATTEMPT_DIGITS}}}/")


class Bucket:
    """A bucket, or a prefix in one; see `Location`, which says what each method does.

    Raises:
        StoreError: If the endpoint in the environment is invalid.
        ValueError: If fsspec does not know the address.
        ImportError: If the package for such addresses is not installed.
    """

    moves_what_it_commits = False

    def __init__(self, url: str) -> None:
        self.name = url
        self.address = url
        self._storage = ObjectStorage(url, url)
        self._manifests: dict[str, list[str]] = {}

    def read(self, path: str) -> bytes:
        """Fetch a file."""
        return self._storage.read(path)

    def read_lasting(self, path: str) -> bytes:
        """Fetch an immutable file, once per process."""
        return self._storage.read_lasting(path)

    def read_copied(self, path: str) -> bytes:
        """Return this machine's copy of an immutable file, fetched unless there is one."""
        return local_cache.small_file(self._copy_name(path), lambda: self.read(path))

    def forget(self, path: str) -> None:
        """Remove a file from the caches of `read_lasting` and `read_copied`."""
        self._storage.forget(path)
        local_cache.forget(local_cache.digest_of(self._copy_name(path)))

    def replace(self, path: str, data: bytes) -> None:
        """Put a file."""
        self._storage.replace(path, data)

    def replace_durably(self, path: str, data: bytes) -> None:
        """Put a file, which lasts as soon as the server has answered."""
        self.replace(path, data)

    def create(self, path: str, data: bytes) -> bool:
        """Put a file on the condition that there is none."""
        return self._storage.create(path, data)

    def create_lasting(self, path: str, data: bytes) -> bool:
        """Create an immutable file, and cache it."""
        is_created = self.create(path, data)
        if is_created:
            self._storage.remember(path, data)
        return is_created

    def names(self, folder: str) -> list[str]:
        """List the names below a prefix, with one request."""
        try:
            return sorted(self._storage.names(folder))
        except FileNotFoundError:
            return []

    def files(self, folder: str) -> list[StoredFile]:
        """List all files below a prefix."""
        try:
            infos = self._storage.files(folder)
        except FileNotFoundError:
            return []
        return sorted(StoredFile(path, info["size"], _modified(info)) for path, info in infos.items())

    def modified(self, folder: str) -> datetime | None:
        """There are no folders."""
        return None

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Fetch bytes of a file."""
        return self._storage.read_range(path, start, end)

    def digest(self, path: str) -> tuple[str, int]:
        """Fetch a file in parts, and hash it."""
        return self._storage.digest(path)

    def upload(self, file: Path, path: str) -> None:
        """Send a file, a large one in parts."""
        self._storage.upload(file, path)

    def download(self, path: str, file: Path, size_bytes: int) -> None:
        """Fetch a file, a large one in parts."""
        self._storage.download(path, file, size_bytes)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, one by one."""
        for path in paths:
            try:
                self._storage.delete(path)
            except FileNotFoundError:
                continue

    def remove_empty(self, folder: str) -> None:
        """There are no folders."""

    def failure(self, verb: str, path: str, error: OSError) -> StoreError:
        """Return the error for an operation that failed at `path`, with advice about the server."""
        return self._storage.failure(verb, path, error)

    def absence(self) -> str:
        """Say why there is no store here: there is no run. A prefix does not exist before something is put below it."""
        return "" if self.names("runs") else "it has nothing below runs/"

    def new_folder(self) -> Path:
        """Create a folder beside the copies."""
        return local_cache.scratch_folder()

    def holds(self, place: Path) -> bool:
        """Whether a path is in the folder of the copies."""
        return place.is_relative_to(local_cache.cache_folder().absolute())

    def paths_of(self, names: Sequence[str]) -> list[str]:
        """Return paths with a prefix of their own."""
        attempt = uuid.uuid4().hex[:_ATTEMPT_DIGITS]
        return [f"{attempt}/{name}" for name in names]

    def is_attempt(self, path: str) -> bool:
        """Whether the path begins with such a prefix."""
        return _ATTEMPT.match(path) is not None

    def commit(self, folder: Path, manifest: Manifest, faults: Callable[[Manifest], list[str]]) -> bool:
        """Send the files, check them, and put the manifest."""
        known = self._manifests.pop(f"{manifest.kind}/{manifest.key}", [DROPPED_NAME])
        return commit_remotely(self, folder, manifest, faults, was_dropped=DROPPED_NAME in known)

    def commit_dropped(self, manifest: Manifest) -> bool:
        """Put the manifest as that of a dropped artifact; False if there is one."""
        return self.create(f"{manifest.kind}/{manifest.key}/{DROPPED_NAME}", text_of(manifest).encode())

    def adopt(self, folder: Path, manifest: Manifest, *, is_ours: bool) -> Path | None:
        """Make the folder that was sent this machine's copy."""
        return local_cache.adopt(folder, manifest.manifest_digest)

    def manifests(self, folder: str) -> list[str]:
        """List a prefix, and remember what it has, for `was_missed` and `commit`."""
        self._manifests[folder] = [name for name in self.names(folder) if name in (MANIFEST_NAME, DROPPED_NAME)]
        return self._manifests[folder]

    def was_missed(self, folder: str) -> bool:
        """Whether the last listing had neither manifest."""
        return self._manifests.get(folder) == []

    def hide(self, folder: str, manifest_name: str) -> str | None:
        """Delete the manifest; the names of the files are those of one attempt, so no other process uses them."""
        self.delete([f"{folder}/{manifest_name}"] if manifest_name else [])
        return folder

    def opened(self, path: str, size_bytes: int) -> tuple[RangeFile, int]:
        """Return a file of which ranges are fetched; that it exists is not checked."""
        return RangeFile(partial(self.read_range, path), size_bytes), size_bytes

    def folder_in_place(self, folder: str) -> Path | None:
        """Nothing is on this machine."""
        return None

    def copy_of(self, folder: str, digest: str) -> Path | None:
        """Return this machine's copy."""
        return local_cache.copy_of(digest)

    def forget_copy(self, digest: str) -> bool:
        """Remove this machine's copy."""
        local_cache.forget(digest)
        return True

    def _copy_name(self, path: str) -> str:
        server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
        return f"{server} {self.address}/{path}"


def _modified(info: dict[str, Any]) -> datetime:
    time = next((info[name] for name in ("LastModified", "mtime", "modified", "created") if info.get(name)), None)
    if isinstance(time, datetime):
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return datetime.fromtimestamp(time, UTC) if isinstance(time, int | float) else datetime.now(UTC)
