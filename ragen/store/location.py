"""Where a store is: the one place that touches a file system, local or remote, through fsspec.

It offers what artifacts need and no more: read a file, replace a file in one step, create a file once, move files
between here and there. Every failure becomes a `StoreError` that says what was tried, where, and what to do. Remote
calls have short time-outs and are repeated a few times; credentials never enter a message.
"""

import errno
import hashlib
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import fsspec

from ragen.errors import StoreError

CONNECT_TIMEOUT_S = 5
"""Seconds to reach a server."""
READ_TIMEOUT_S = 20
"""Seconds a server may be silent."""
NUM_ATTEMPTS = 3
"""Tries of a remote call, the first included."""
BACKOFF_S = 0.25
"""Pause before the second try; doubled before each further one."""
NUM_REQUESTS = 16
"""Small files asked for at once: on object storage they cost waiting, not work."""
NUM_TRANSFERS = 8
"""Files read or written whole at once."""

_BLOCK_BYTES = 8 * 2**20
_S3_OPTIONS = {
    "config_kwargs": {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        "retries": {"total_max_attempts": 1},  # repeated here instead, where the whole wait is bounded
    }
}
_LASTING_ERRORS = (PermissionError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)

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
        self.name = _without_credentials(url)
        if self.name != url:
            raise StoreError(
                f"the store's address {self.name} carries credentials, which would end up in logs; take them out and "
                "put them into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or ~/.aws/credentials"
            )
        protocol = urlsplit(url).scheme if "://" in url else "file"
        self.local = Path(url.removeprefix("file://")).expanduser().absolute() if protocol == "file" else None
        if protocol == "s3" and not urlsplit(url).netloc:
            raise StoreError(f"the store's address {self.name} names no bucket; expected s3://bucket/prefix")
        options = _S3_OPTIONS if protocol == "s3" else {}
        try:
            self._fs, root = fsspec.core.url_to_fs(
                str(self.local or url), use_listings_cache=False, skip_instance_cache=True, **options
            )
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"the store's address {self.name} is of no known kind ({error}); "
                "expected a folder, or an address such as s3://bucket/prefix"
            ) from error
        self._root = root.rstrip("/")
        if protocol == "s3":
            self._fs.retries = 1

    def read(self, path: str) -> bytes:
        """The bytes of a file.

        Raises:
            FileNotFoundError: If there is no such file (but a StoreError if there is no such bucket).
            StoreError: If it cannot be read.
        """
        return self._attempt("read", path, lambda place: self._fs.cat_file(place))

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file in one step: readers see the old bytes or the new ones, never a part."""
        if self.local is None:
            self._attempt("write", path, lambda place: self._fs.pipe_file(place, data))
        else:
            self._attempt("write", path, lambda place: _replace_local(Path(place), data))

    def create(self, path: str, data: bytes) -> bool:
        """Write a small file unless it exists; of several writers at once one wins.

        Returns:
            False: it existed.
        """
        return self._attempt("write", path, lambda place: self._create(place, data))

    def names(self, folder: str) -> list[str]:
        """Sorted names of what is directly in a folder; empty where there is none."""
        try:
            entries = self._attempt("list", folder, lambda place: self._fs.ls(place, detail=False))
        except FileNotFoundError:
            return []
        return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries)

    def files(self, folder: str) -> list[StoredFile]:
        """All files in a folder and below it, by path; empty where there is none. Links are not followed."""
        try:
            if self.local is not None:
                return self._attempt("list", folder, lambda place: _local_files(Path(place), Path(self._root)))
            found = self._attempt("list", folder, lambda place: self._fs.find(place, detail=True))
        except FileNotFoundError:
            return []
        start = len(self._root.lstrip("/")) + 1
        paths = {name.lstrip("/")[start:]: info for name, info in found.items()}
        return sorted(StoredFile(path, info["size"], _modified(info)) for path, info in paths.items())

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
        return self._attempt("read", path, lambda place: self._fs.cat_file(place, start=start, end=end))

    def digest(self, path: str) -> tuple[str, int]:
        """SHA-256 (64 hex digits) and size in bytes of a file, read whole in bounded memory.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        return self._attempt("read", path, self._digest)

    def upload(self, file: Path, path: str) -> None:
        """Copy a local file here."""
        self._attempt("write", path, lambda place: self._fs.put_file(str(file), place))

    def download(self, path: str, file: Path) -> None:
        """Copy a file from here.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        self._attempt("read", path, lambda place: self._fs.get_file(place, str(file)))

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files; those that do not exist are passed over."""
        for path in paths:
            try:
                self._attempt("delete", path, lambda place: self._fs.rm_file(place))
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

    def failure(self, verb: str, path: str, error: Exception) -> StoreError:
        """The error to raise where something at `path` could not be done."""
        place = f"{self.name.rstrip('/')}/{path}"
        detail = _without_credentials(f"{type(error).__name__}: {error}")
        return StoreError(f"cannot {verb} {place}: {detail}\n{self._advice(error)}")

    def _digest(self, place: str) -> tuple[str, int]:
        sha256, size_bytes = hashlib.sha256(), 0
        with self._fs.open(place, "rb", block_size=_BLOCK_BYTES) as stream:
            while block := stream.read(_BLOCK_BYTES):
                sha256.update(block)
                size_bytes += len(block)
        return sha256.hexdigest(), size_bytes

    def _create(self, place: str, data: bytes) -> bool:
        try:
            if self.local is None:
                self._fs.pipe_file(place, data, mode="create")
            else:
                _create_local(Path(place), data)
        except OSError as error:
            # Ceph's gateway answers a failed condition in words that s3fs does not know, hence EINVAL.
            if (isinstance(error, FileExistsError) or error.errno == errno.EINVAL) and self._fs.isfile(place):
                return False
            raise
        return True

    def _attempt(self, verb: str, path: str, call: Callable[[str], T]) -> T:
        """Call with the absolute place of `path`; repeat what may pass; translate what does not."""
        place = f"{self._root}/{path}" if path else self._root
        for attempt in range(1, NUM_ATTEMPTS + 1):
            try:
                return call(place)
            except FileNotFoundError as error:
                if "specified bucket does not exist" in str(error):
                    raise self.failure(verb, path, error) from error
                raise
            except Exception as error:  # botocore's and aiohttp's errors share no base but this one
                if not _is_storage_error(error):
                    raise
                if attempt == NUM_ATTEMPTS or self.local is not None or not _is_transient(error):
                    raise self.failure(verb, path, error) from error
                time.sleep(BACKOFF_S * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _advice(self, error: Exception) -> str:
        if self.local is not None:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                return "The disk is full: free some space, or set the store to another folder."
            return f"Check that {self.local} is a folder that you may read and write, or set the store to another one."
        if isinstance(error, FileNotFoundError):
            return "Create the bucket first (aws s3 mb s3://NAME), or correct the store's address."
        if isinstance(error, PermissionError) or "credentials" in str(error).lower():
            return "Check the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_PROFILE) and their rights."
        return (
            f"Given up after {NUM_ATTEMPTS} tries: check that the server runs and can be reached (AWS_ENDPOINT_URL for "
            "one that is not Amazon's); nothing was lost, run the same command again."
        )


def sync(path: Path) -> None:
    """Have a file, or a folder's list of names, on disk before going on, so that a power failure loses no commit."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create_local(path: Path, data: bytes) -> None:
    """Create a file whole or not at all; FileExistsError where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        whole.write_bytes(data)
        os.link(whole, path)
    finally:
        whole.unlink(missing_ok=True)


def _replace_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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


def _is_storage_error(error: Exception) -> bool:
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in (
        "botocore",
        "aiobotocore",
        "aiohttp",
        "fsspec",
        "s3fs",
    )


def _is_transient(error: Exception) -> bool:
    """May another try succeed? Unknown errors of a server may; wrong names, rights and credentials may not."""
    return not isinstance(error, _LASTING_ERRORS) and "Credentials" not in type(error).__name__


def _without_credentials(text: str) -> str:
    """Blank what could be a secret in an address: `user:password@`, and the query."""
    text = re.sub(r"(?<=://)[^/\s@]*@", "***@", text)
    return re.sub(r"(://[^\s?\"']*)\?[^\s\"']*", r"\1?***", text)
