"""A store's location: the only code that touches a file system, local or, through `ObjectStorage`, remote.

It offers only what artifacts need: read a file, replace a file atomically, create a file once, transfer files. Every
failure becomes a `StoreError` that states what was tried, where, and what to do.
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
from starpo.ragen.store.remote.redaction import check_address

NUM_REQUESTS = 16
"""Concurrent requests for small files: on object storage they are bound by latency, not by work."""
NUM_TRANSFERS = 8
"""Files read or written completely at the same time."""

_BLOCK_BYTES = 8 * 2**20

T = TypeVar("T")


@dataclass(frozen=True, order=True)
class StoredFile:
    """A file in a listing."""

    path: str
    """Path relative to the location."""
    size_bytes: int
    """Size in bytes."""
    modified: datetime
    """Time of the last write, in UTC, by the clock of the storage; the current time if that is unknown."""


class Location:
    """A folder named by an fsspec URL or a local path.

    Paths passed to its methods are relative to it and use '/'.

    Attributes:
        local: The folder's path if it is on this machine, else None.
        name: The URL, without secrets.
    """

    def __init__(self, url: str) -> None:
        self.name = check_address(url)
        protocol = urlsplit(url).scheme if "://" in url else "file"
        try:
            self.local = Path(url.removeprefix("file://")).expanduser().absolute() if protocol == "file" else None
        except RuntimeError as error:
            raise StoreError(f"the store's address {self.name} names an unknown home folder: {error}") from error
        if protocol in ("s3", "s3a") and not urlsplit(url).netloc:
            raise StoreError(f"the store's address {self.name} names no bucket; expected s3://bucket/prefix")
        if self.local is not None:
            return
        from starpo.ragen.store.remote.object_storage import ObjectStorage

        try:
            self._remote = ObjectStorage(url, self.name)
        except StoreError:
            raise
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"the store's address {self.name} is not supported ({error}); "
                "expected a folder, or an address such as s3://bucket/prefix"
            ) from error

    def read(self, path: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: If there is no such file (but a StoreError if there is no such bucket).
            StoreError: If it cannot be read.
        """
        if self.local is None:
            return self._remote.read(path)
        return self._locally("read", path, Path.read_bytes)

    def read_lasting(self, path: str) -> bytes:
        """Read an immutable file, such as a manifest. A remote one is fetched once per process.

        Success does not imply that the file still exists. See `forget`.
        """
        return self.read(path) if self.local is not None else self._remote.read_lasting(path)

    def forget(self, path: str) -> None:
        """Make `read_lasting` fetch the file again."""
        if self.local is None:
            self._remote.forget(path)

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file atomically: readers see the old bytes or the new ones, never a part."""
        if self.local is None:
            self._remote.replace(path, data)
        else:
            self._locally("write", path, lambda place: _replace_local(place, data))

    def create(self, path: str, data: bytes) -> bool:
        """Write a small file unless it exists; one of several concurrent writers wins.

        Args:
            path: The file.
            data: The content, unique to this writer. On object storage, where a response may be lost, an existing file
                with these bytes counts as written by this call.

        Returns:
            False if it existed.
        """
        if self.local is None:
            return self._remote.create(path, data)
        return self._locally("write", path, lambda place: _create_local(place, data))

    def create_lasting(self, path: str, data: bytes) -> bool:
        """Create an immutable file, and cache its content for `read_lasting`."""
        is_created = self.create(path, data)
        if is_created and self.local is None:
            self._remote.remember(path, data)
        return is_created

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly in a folder; empty if there is no such folder."""
        try:
            if self.local is None:
                return sorted(self._remote.names(folder))
            return self._locally("list", folder, lambda place: sorted(os.listdir(place)))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files in a folder recursively, sorted by path; empty if there is no such folder. Links are not
        followed."""
        try:
            if self.local is not None:
                root = self.local
                return self._locally("list", folder, lambda place: _local_files(place, root))
            found = self._remote.files(folder)
        except FileNotFoundError:
            return []
        return sorted(StoredFile(path, info["size"], _modified(info)) for path, info in found.items())

    def modified(self, folder: str) -> datetime | None:
        """Return when a local folder's list of names last changed, in UTC; None if it does not exist or the storage has
        no folders."""
        if self.local is None:
            return None
        try:
            return datetime.fromtimestamp((self.local / folder).lstat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Read the bytes of a file from `start` to before `end`, or fewer if it ends earlier.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        if self.local is None:
            return self._remote.read_range(path, start, end)
        return self._locally("read", path, lambda place: _local_range(place, start, end))

    def digest(self, path: str) -> tuple[str, int]:
        """Return SHA-256 (64 hex digits) and size in bytes of a file, read completely in bounded memory.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        return self._remote.digest(path) if self.local is None else self._locally("read", path, _local_digest)

    def upload(self, file: Path, path: str) -> None:
        """Copy a local file to this location."""
        if self.local is None:
            self._remote.upload(file, path)
        else:
            self._locally("write", path, lambda place: _copy_local(file, place))

    def download(self, path: str, file: Path, size_bytes: int) -> None:
        """Copy a file of this size from this location.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        if self.local is None:
            self._remote.download(path, file, size_bytes)
        else:
            self._locally("read", path, lambda place: _copy_local(place, file))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; missing ones are skipped."""
        for path in paths:
            try:
                if self.local is None:
                    self._remote.delete(path)
                else:
                    self._locally("delete", path, Path.unlink)
            except FileNotFoundError:
                continue

    def move(self, folder: str, target: str) -> bool:
        """Rename a folder of a local store atomically.

        Returns:
            False if it does not exist, or something is at the target; nothing was changed.
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
        """Remove a folder and its subfolders, as far as they contain no files. Remote storage has no folders."""
        if self.local is None:
            return
        for place, _, _ in os.walk(self.local / folder, topdown=False):
            try:
                os.rmdir(place)  # noqa: PTH106 (refuses a folder with something in it, which is the point)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise self.failure("delete", folder, error) from error

    def failure(self, verb: str, path: str, error: OSError) -> StoreError:
        """Return the error for an operation that failed at `path`, or on this machine on its behalf."""
        if self.local is None:
            return self._remote.failure(verb, path, error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = (
                f"The disk is full, only {_free(self.local)} are left: free some space (`starpo store gc` deletes what "
                "no run needs; with checkpoint_every a run keeps fewer checkpoints), or set the store to another "
                "folder. Nothing was lost: run the same command again."
            )
        else:
            advice = (
                f"Check that {self.local} is a folder that you may read and write, or set the store to another one."
            )
        detail = without_secrets(f"{type(error).__name__}: {error}")
        return StoreError(f"cannot {verb} {self.name.rstrip('/')}/{path}: {detail}\n{advice}")

    def _locally(self, verb: str, path: str, call: Callable[[Path], T]) -> T:
        """Call with the local path of `path`.

        Raises:
            FileNotFoundError: If there is nothing to read, list or delete.
            StoreError: For every other error of the disk.
        """
        assert self.local is not None
        try:
            return call(self.local / path)
        except OSError as error:
            if verb != "write" and isinstance(error, FileNotFoundError):
                raise
            if verb != "write" and isinstance(error, NotADirectoryError) and self.local.is_dir():
                raise FileNotFoundError(errno.ENOENT, "a file stands in place of its folder", path) from error
            raise self.failure(verb, path, error) from error


def sync(path: Path) -> None:
    """Flush a file, or a folder's list of names, to disk, so that a power failure loses no commit."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free(folder: Path) -> str:
    """Return the free space on the disk of a folder, or of its nearest existing parent."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    return f"{shutil.disk_usage(place).free / 1e6:.1f} MB"


def _create_local(path: Path, data: bytes) -> bool:
    """Create a file atomically; returns False if it exists."""
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
        if not isinstance(error, FileNotFoundError | NotADirectoryError):  # deleted since its parent was listed
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
