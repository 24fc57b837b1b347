"""Where a store is: the one place that touches a file system, local or, through `ObjectStorage`, remote.

It offers what artifacts need and no more: read a file, replace a file in one step, create a file once, move files
between here and there. Every failure becomes a `StoreError` that says what was tried, where, and what to do.
"""

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from starpo.ragen.core.errors import StoreError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.store.remote.object_storage import ObjectStorage
from starpo.ragen.store.remote.redaction import check_address

NUM_REQUESTS = 16
"""Small files asked for at once: on object storage they cost waiting, not work."""
NUM_TRANSFERS = 8
"""Files read or written whole at once."""

_BLOCK_BYTES = 8 * 2**20

T = TypeVar("T")


@dataclass(frozen=True, order=True)
class StoredFile:
    """A file, as a listing shows it."""

    path: str
    """Relative to the location."""
    size_bytes: int
    """Its size."""
    modified: datetime
    """When it was last written, in UTC, by the clock of whoever keeps it; now, where that is not told."""


class Location:
    """A folder named by an fsspec URL or a local path.

    Paths given to its methods are relative to it and use '/'.

    Attributes:
        local: The folder's path where it is on this machine, else None.
        name: The URL as it may be shown.
    """

    def __init__(self, url: str) -> None:
        self.name = check_address(url)
        protocol = urlsplit(url).scheme if "://" in url else "file"
        try:
            self.local = Path(url.removeprefix("file://")).expanduser().absolute() if protocol == "file" else None
        except RuntimeError as error:
            raise StoreError(f"the store's address {self.name} begins with no user's home: {error}") from error
        if protocol in ("s3", "s3a") and not urlsplit(url).netloc:
            raise StoreError(f"the store's address {self.name} names no bucket; expected s3://bucket/prefix")
        if self.local is not None:
            return
        try:
            self._remote = ObjectStorage(url, self.name)
        except StoreError:
            raise
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"the store's address {self.name} is of no known kind ({error}); "
                "expected a folder, or an address such as s3://bucket/prefix"
            ) from error

    def read(self, path: str) -> bytes:
        """The bytes of a file.

        Raises:
            FileNotFoundError: If there is no such file (but a StoreError if there is no such bucket).
            StoreError: If it cannot be read.
        """
        if self.local is None:
            return self._remote.read(path)
        return self._locally("read", path, Path.read_bytes)

    def read_lasting(self, path: str) -> bytes:
        """The bytes of a file that never changes, such as a manifest. A remote one is fetched once a process.

        That it is still there is not known from this. See `forget`.
        """
        return self.read(path) if self.local is not None else self._remote.read_lasting(path)

    def forget(self, path: str) -> None:
        """Have `read_lasting` ask for a file again."""
        if self.local is None:
            self._remote.forget(path)

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file in one step: readers see the old bytes or the new ones, never a part."""
        if self.local is None:
            self._remote.replace(path, data)
        else:
            self._locally("write", path, lambda place: _replace_local(place, data))

    def create(self, path: str, data: bytes) -> bool:
        """Write a small file unless it exists; of several writers at once one wins.

        Args:
            path: The file.
            data: What to write: this writer's alone. On object storage, where an answer may be lost, a file with
                these bytes was written by this call.

        Returns:
            False: it existed.
        """
        if self.local is None:
            return self._remote.create(path, data)
        return self._locally("write", path, lambda place: _create_local(place, data))

    def create_lasting(self, path: str, data: bytes) -> bool:
        """The same for a file that never changes; `read_lasting` knows it then."""
        is_created = self.create(path, data)
        if is_created and self.local is None:
            self._remote.remember(path, data)
        return is_created

    def names(self, folder: str) -> list[str]:
        """Sorted names of what is directly in a folder; empty where there is none."""
        try:
            if self.local is None:
                return sorted(self._remote.names(folder))
            return self._locally("list", folder, lambda place: sorted(os.listdir(place)))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def files(self, folder: str) -> list[StoredFile]:
        """All files in a folder and below it, by path; empty where there is none. Links are not followed."""
        try:
            if self.local is not None:
                root = self.local
                return self._locally("list", folder, lambda place: _local_files(place, root))
            found = self._remote.files(folder)
        except FileNotFoundError:
            return []
        return sorted(StoredFile(path, info["size"], _modified(info)) for path, info in found.items())

    def modified(self, folder: str) -> datetime | None:
        """When a local folder's list of names last changed, in UTC; None: there is none, or storage has no folders."""
        if self.local is None:
            return None
        try:
            return datetime.fromtimestamp((self.local / folder).lstat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes of a file from `start` to before `end`, or fewer where it ends earlier.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        if self.local is None:
            return self._remote.read_range(path, start, end)
        return self._locally("read", path, lambda place: _local_range(place, start, end))

    def digest(self, path: str) -> tuple[str, int]:
        """SHA-256 (64 hex digits) and size in bytes of a file, read whole in bounded memory.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        return self._remote.digest(path) if self.local is None else self._locally("read", path, _local_digest)

    def upload(self, file: Path, path: str) -> None:
        """Copy a local file here."""
        if self.local is None:
            self._remote.upload(file, path)
        else:
            self._locally("write", path, lambda place: _copy_local(file, place))

    def download(self, path: str, file: Path, size_bytes: int) -> None:
        """Copy a file of this size from here.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        if self.local is None:
            self._remote.download(path, file, size_bytes)
        else:
            self._locally("read", path, lambda place: _copy_local(place, file))

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files; those that do not exist are passed over."""
        for path in paths:
            try:
                if self.local is None:
                    self._remote.delete(path)
                else:
                    self._locally("delete", path, Path.unlink)
            except FileNotFoundError:
                continue

    def move(self, folder: str, target: str) -> bool:
        """Rename a folder of a local store in one step.

        Returns:
            False: it is not there, or something is at the target; nothing was changed.
        """
        assert self.local is not None, "storage without folders cannot move them"
        try:
            (self.local / target).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.local / folder, self.local / target)  # noqa: PTH104 (refuses a folder that is not empty)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise self.failure("delete", folder, error) from error
        return True

    def remove_empty(self, folder: str) -> None:
        """Remove a folder and the folders in it, as far as there is no file in them. Remote storage has no folders."""
        if self.local is None:
            return
        for place, _, _ in os.walk(self.local / folder, topdown=False):
            try:
                os.rmdir(place)  # noqa: PTH106 (refuses a folder with something in it, which is the point)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise self.failure("delete", folder, error) from error

    def failure(self, verb: str, path: str, error: OSError) -> StoreError:
        """The error to raise where something at `path`, or on this machine on its behalf, could not be done."""
        if self.local is None:
            return self._remote.failure(verb, path, error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = (
                f"The disk is full, {_free(self.local)} are free: free some space (`ragen store gc` deletes what no "
                "run needs; with checkpoint_every a run keeps fewer checkpoints), or set the store to another folder. "
                "Nothing was lost: run the same command again."
            )
        else:
            advice = (
                f"Check that {self.local} is a folder that you may read and write, or set the store to another one."
            )
        detail = without_secrets(f"{type(error).__name__}: {error}")
        return StoreError(f"cannot {verb} {self.name.rstrip('/')}/{path}: {detail}\n{advice}")

    def _locally(self, verb: str, path: str, call: Callable[[Path], T]) -> T:
        """Call with the place of `path` on this machine.

        Raises:
            FileNotFoundError: If there is none to read, list or delete.
            StoreError: For everything else that the disk refuses.
        """
        assert self.local is not None
        try:
            return call(self.local / path)
        except OSError as error:
            if verb != "write" and isinstance(error, FileNotFoundError):
                raise
            raise self.failure(verb, path, error) from error


def sync(path: Path) -> None:
    """Have a file, or a folder's list of names, on disk before going on, so that a power failure loses no commit."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free(folder: Path) -> str:
    """Space on the disk of a folder, or of the nearest one above that is there."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    return f"{shutil.disk_usage(place).free / 1e6:.1f} MB"


def _create_local(path: Path, data: bytes) -> bool:
    """Create a file whole or not at all; False where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        whole.write_bytes(data)
        os.link(whole, path)
    except FileExistsError:
        return False
    finally:
        whole.unlink(missing_ok=True)
    return True


def _replace_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _local_range(path: Path, start: int, end: int) -> bytes:
    with path.open("rb") as stream:
        stream.seek(start)
        return stream.read(end - start)


def _local_digest(path: Path) -> tuple[str, int]:
    sha256, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            sha256.update(block)
            size_bytes += len(block)
    return sha256.hexdigest(), size_bytes


def _copy_local(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


def _local_files(folder: Path, root: Path) -> list[StoredFile]:
    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):  # gone since its parent was listed
            raise error

    files = []
    for place, _, names in os.walk(folder, onerror=fail):
        for path in (Path(place, name) for name in names):
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            modified = datetime.fromtimestamp(status.st_mtime, UTC)
            files.append(StoredFile(path.relative_to(root).as_posix(), status.st_size, modified))
    return sorted(files)


def _modified(info: dict[str, Any]) -> datetime:
    found = next((info[name] for name in ("LastModified", "mtime", "modified", "created") if info.get(name)), None)
    if isinstance(found, datetime):
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return datetime.fromtimestamp(found, UTC) if isinstance(found, int | float) else datetime.now(UTC)
