"""`Location`: what a store needs of the place that it is in, whether that is a folder or object storage.

Its two implementations, `Folder` and `Bucket`, are the only code that touches a file system or S3; `open_location`
(`ragen.store.remote.opening`) makes the one that an address names. Every failure becomes a `StoreError` that states
what was tried, where, and what to do.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.remote.ranges import RangeFile
from starpo.schemas.manifest import Manifest

NUM_REQUESTS = 16
"""Concurrent requests for small files: on object storage they are bound by latency, not by work."""
NUM_TRANSFERS = 8
"""Files read or written completely at the same time."""


@dataclass(frozen=True, order=True)
class StoredFile:
    """A file in a listing."""

    path: str
    """Path relative to the location."""
    size_bytes: int
    """Size in bytes."""
    modified: datetime
    """Time of the last write, in UTC, by the clock of the storage; the current time if that is unknown."""


class Location(Protocol):
    """The place of a store. Paths passed to its methods are relative to it and use '/'.

    Methods that name no file of the store concern the folders `<kind>/<key>` of artifacts: how they are written,
    hidden, and read on this machine differs where files can be renamed and where they can only be put.

    Attributes:
        name: The URL as given, without secrets.
        address: The URL independent of the working folder.
        moves_what_it_commits: Whether `commit` moves the folder that it is given. If not, that may be any folder.
    """

    name: str
    address: str
    moves_what_it_commits: bool

    def read(self, path: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: If there is no such file (but a StoreError if there is no such bucket).
            StoreError: If it cannot be read.
        """
        ...

    def read_lasting(self, path: str) -> bytes:
        """Read an immutable file, such as a manifest. A remote one is fetched once per process.

        Success does not imply that the file still exists. See `forget`.
        """
        ...

    def read_copied(self, path: str) -> bytes:
        """Read an immutable file. A remote one is fetched once per machine: another file may be there by now. See
        `forget`."""
        ...

    def forget(self, path: str) -> None:
        """Make `read_lasting` and `read_copied` fetch the file again."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file atomically: readers see the old bytes or the new ones, never a part."""
        ...

    def replace_durably(self, path: str, data: bytes) -> None:
        """Write a small file atomically; it survives a power failure once this returns."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Write a small file unless it exists; one of several concurrent writers wins.

        Args:
            path: The file.
            data: The content, unique to this writer. On object storage, where a response may be lost, an existing file
                with these bytes counts as written by this call.

        Returns:
            False if it existed.
        """
        ...

    def create_lasting(self, path: str, data: bytes) -> bool:
        """Create an immutable file, and cache its content for `read_lasting`."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly in a folder; empty if there is no such folder."""
        ...

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files in a folder recursively, sorted by path; empty if there is no such folder. Links are not
        followed."""
        ...

    def modified(self, folder: str) -> datetime | None:
        """Return when a folder's list of names last changed, in UTC; None if it does not exist or the storage has no
        folders."""
        ...

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Read the bytes of a file from `start` to before `end`, or fewer if it ends earlier.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        ...

    def digest(self, path: str) -> tuple[str, int]:
        """Return SHA-256 (64 hex digits) and size in bytes of a file, read completely in bounded memory.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        ...

    def upload(self, file: Path, path: str) -> None:
        """Copy a local file to this location."""
        ...

    def download(self, path: str, file: Path, size_bytes: int) -> None:
        """Copy a file of this size from this location.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; missing ones are skipped."""
        ...

    def remove_empty(self, folder: str) -> None:
        """Remove a folder and its subfolders, as far as they contain no files, if the storage has folders."""
        ...

    def failure(self, verb: str, path: str, error: OSError) -> StoreError:
        """Return the error for an operation that failed at `path`, or on this machine on its behalf."""
        ...

    def absence(self) -> str:
        """Say why there is no store here; empty if there is one, or a folder in which one may begin."""
        ...

    def new_folder(self) -> Path:
        """Create an empty folder on this machine for the files of a new artifact.

        Raises:
            OSError: If it cannot be created.
        """
        ...

    def holds(self, place: Path) -> bool:
        """Whether a path on this machine is in the store, or in the folder where its new artifacts are made."""
        ...

    def paths_of(self, names: Sequence[str]) -> list[str]:
        """Return where `commit` puts the files of a new artifact, relative to its folder."""
        ...

    def is_attempt(self, path: str) -> bool:
        """Whether a path relative to an artifact's folder is, by its name, of one attempt of several to write it."""
        ...

    def commit(self, folder: Path, manifest: Manifest, faults: Callable[[Manifest], list[str]]) -> bool:
        """Make a folder an artifact.

        Args:
            folder: From `new_folder`, unless commits move nothing here; the files have the names in the manifest.
            manifest: From `Artifacts.sealed`.
            faults: Lists differences between the manifest and files that were sent elsewhere, before they count.

        Returns:
            False if another writer was first; nothing of the folder is in the store then.

        Raises:
            StoreError: If the store did not keep what it received, or something keeps recreating the artifact.
        """
        ...

    def commit_dropped(self, manifest: Manifest) -> bool:
        """Make a manifest an artifact that is recorded, never written; False if there is one."""
        ...

    def adopt(self, folder: Path, manifest: Manifest, *, is_ours: bool) -> Path | None:
        """Return a folder on this machine with the files of an artifact that was just stored.

        Args:
            folder: The folder that was passed to `commit`; its files have the content of the artifact's.
            manifest: The manifest in the store.
            is_ours: Whether `commit` put it there.

        Returns:
            None if another writer's files would have to be read.
        """
        ...

    def manifests(self, folder: str) -> list[str]:
        """Return which manifests an artifact's folder has, of `manifest.json` and `dropped.json`. Reads no file."""
        ...

    def was_missed(self, folder: str) -> bool:
        """Whether the last call of `manifests` found none, and another one would cost a request."""
        ...

    def hide(self, folder: str, manifest_name: str) -> str | None:
        """Hide an artifact from readers, atomically.

        Args:
            folder: The artifact's folder.
            manifest_name: The manifest that makes it one; empty for a folder without any.

        Returns:
            Path at which the files are then; None if it has just gone. If that is still `folder`, the manifest is
            deleted.
        """
        ...

    def opened(self, path: str, size_bytes: int) -> tuple[Path | RangeFile, int]:
        """Return a file in place, to be read in part, and its size in bytes; if asking costs a request, the size that
        it is expected to have.

        Raises:
            FileNotFoundError: If there is no such file, as far as known without a request.
        """
        ...

    def folder_in_place(self, folder: str) -> Path | None:
        """Return a folder of the store if it is on this machine, to be read only; None if it is elsewhere."""
        ...

    def copy_of(self, folder: str, digest: str) -> Path | None:
        """Return a folder on this machine with the files of an artifact, not yet verified; None if there is none.

        Args:
            folder: The artifact's folder.
            digest: Its manifest's digest.
        """
        ...

    def forget_copy(self, digest: str) -> bool:
        """Remove this machine's copy of an artifact, by its manifest's digest.

        Returns:
            False if there are no copies, as the files themselves are on this machine.
        """
        ...
