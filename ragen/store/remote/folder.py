"""`Folder`: the location of a store on this machine's disk, or one that is mounted.

An artifact is written to `tmp/<unique>/` and becomes visible by one rename of that folder; see `committing`.
"""

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from starpo.ragen.core.errors import StoreError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.store.remote.committing import DROPPED_NAME, commit_locally, sync
from starpo.ragen.store.remote.location import StoredFile
from starpo.ragen.store.remote.staging import staged
from starpo.schemas.manifest import MANIFEST_NAME, Manifest

_BLOCK_BYTES = 8 * 2**20

T = TypeVar("T")


class Folder:
    """A folder; see `Location`, which says what each method does.

    Attributes:
        root: Its path, absolute.
    """

    moves_what_it_commits = True

    def __init__(self, name: str, root: Path) -> None:
        """`name` is the address as shown in messages."""
        self.name = name
        self.address = str(root)
        self.root = root

    def read(self, path: str) -> bytes:
        """Read a file."""
        return self._call("read", path, Path.read_bytes)

    def read_lasting(self, path: str) -> bytes:
        """Read an immutable file; nothing is cached."""
        return self.read(path)

    def read_copied(self, path: str) -> bytes:
        """Read a file; nothing is copied."""
        return self.read(path)

    def forget(self, path: str) -> None:
        """Nothing is cached."""

    def replace(self, path: str, data: bytes) -> None:
        """Write a file beside it, and rename it."""
        self._call("write", path, lambda place: _replace(place, data))

    def replace_durably(self, path: str, data: bytes) -> None:
        """Write a file beside it, rename it, and flush both the file and its folder."""
        self.replace(path, data)
        sync(self.root / path)
        sync((self.root / path).parent)

    def create(self, path: str, data: bytes) -> bool:
        """Write a file beside it, and link it, which fails if it exists."""
        return self._call("write", path, lambda place: _create(place, data))

    def create_lasting(self, path: str, data: bytes) -> bool:
        """Create a file; nothing is cached."""
        return self.create(path, data)

    def names(self, folder: str) -> list[str]:
        """List the names in a folder."""
        try:
            return self._call("list", folder, lambda place: sorted(os.listdir(place)))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def files(self, folder: str) -> list[StoredFile]:
        """List the files in a folder recursively."""
        try:
            return self._call("list", folder, lambda place: _files(place, self.root))
        except FileNotFoundError:
            return []

    def modified(self, folder: str) -> datetime | None:
        """Return when the folder's list of names last changed."""
        try:
            return datetime.fromtimestamp(os.lstat(f"{self.root}{os.sep}{folder}").st_mtime, UTC)
        except FileNotFoundError:
            return None

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Read bytes of a file."""
        return self._call("read", path, lambda place: _range(place, start, end))

    def digest(self, path: str) -> tuple[str, int]:
        """Hash a file, block by block."""
        return self._call("read", path, _digest)

    def upload(self, file: Path, path: str) -> None:
        """Copy a file here."""
        self._call("write", path, lambda place: _copy(file, place))

    def download(self, path: str, file: Path, size_bytes: int) -> None:
        """Copy a file from here."""
        self._call("read", path, lambda place: _copy(place, file))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files."""
        for path in paths:
            try:
                self._call("delete", path, Path.unlink)
            except FileNotFoundError:
                continue

    def remove_empty(self, folder: str) -> None:
        """Remove a folder and its subfolders, as far as they contain no files."""
        for place, _, _ in os.walk(self.root / folder, topdown=False):
            try:
                os.rmdir(place)  # noqa: PTH106 (refuses a folder with something in it, which is the point)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise self.failure("delete", folder, error) from error

    def failure(self, verb: str, path: str, error: OSError) -> StoreError:
        """Return the error for an operation that failed at `path`, with advice about the disk."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = (
                f"The disk is full, only {_free(self.root)} are left: free some space (`starpo store gc` deletes what "
                "no run needs; with checkpoint_every a run keeps fewer checkpoints), or set the store to another "
                "folder. Nothing was lost: run the same command again."
            )
        else:
            advice = f"Check that {self.root} is a folder that you may read and write, or set the store to another one."
        detail = without_secrets(f"{type(error).__name__}: {error}")
        return StoreError(f"cannot {verb} {self.name.rstrip('/')}/{path}: {detail}\n{advice}")

    def absence(self) -> str:
        """Say why there is no store here; an empty folder may become one."""
        if self.names("runs"):
            return ""
        if not self.root.is_dir():
            return "there is no such folder"
        if any(self.root.iterdir()) and not (self.root / "runs").is_dir():
            return "that folder has no runs folder, which every store has"
        return ""

    def new_folder(self) -> Path:
        """Create `tmp/<unique>/`."""
        folder = self.root / "tmp" / uuid.uuid4().hex
        folder.mkdir(parents=True)
        return folder

    def holds(self, place: Path) -> bool:
        """Whether a path is in the store."""
        return place.is_relative_to(self.root)

    def paths_of(self, names: Sequence[str]) -> list[str]:
        """Return the names: a commit moves the files together."""
        return list(names)

    def is_attempt(self, path: str) -> bool:
        """An artifact's folder has the files of one writer."""
        return False

    def commit(self, folder: Path, manifest: Manifest, faults: Callable[[Manifest], list[str]]) -> bool:
        """Rename a folder, which sends nothing that could have faults."""
        return commit_locally(self.root, folder, manifest)

    def commit_dropped(self, manifest: Manifest) -> bool:
        """Rename a folder with nothing but the manifest; False if there is an artifact, dropped or not."""
        with staged(self) as folder:
            return commit_locally(self.root, folder, manifest, is_dropped=True)

    def adopt(self, folder: Path, manifest: Manifest, *, is_ours: bool) -> Path | None:
        """Return the artifact's folder if it is the one that was moved there."""
        return self.root / manifest.kind / manifest.key if is_ours else None

    def manifests(self, folder: str) -> list[str]:
        """List a folder."""
        return [name for name in self.names(folder) if name in (MANIFEST_NAME, DROPPED_NAME)]

    def was_missed(self, folder: str) -> bool:
        """Listing a folder again costs no request."""
        return False

    def hide(self, folder: str, manifest_name: str) -> str | None:
        """Move the folder to `tmp`: a process that makes the artifact again meanwhile finds the place free."""
        place = f"tmp/{uuid.uuid4().hex}"
        try:
            (self.root / place).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.root / folder, self.root / place)  # noqa: PTH104 (refuses a folder that is not empty)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return None
            raise self.failure("delete", folder, error) from error
        return place

    def opened(self, path: str, size_bytes: int) -> tuple[Path, int]:
        """Return a file and its size."""
        return self.root / path, (self.root / path).stat().st_size

    def folder_in_place(self, folder: str) -> Path | None:
        """Return the path of a folder."""
        return self.root / folder

    def copy_of(self, folder: str, digest: str) -> Path | None:
        """Return the artifact's folder: no copy is needed."""
        return self.root / folder

    def forget_copy(self, digest: str) -> bool:
        """There are no copies."""
        return False

    def _call(self, verb: str, path: str, call: Callable[[Path], T]) -> T:
        """Call with the local path of `path`.

        Raises:
            FileNotFoundError: If there is nothing to read, list or delete.
            StoreError: For every other error of the disk.
        """
        try:
            return call(self.root / path)
        except OSError as error:
            if verb != "write" and isinstance(error, FileNotFoundError):
                raise
            if verb != "write" and isinstance(error, NotADirectoryError) and self.root.is_dir():
                raise FileNotFoundError(errno.ENOENT, "a file stands in place of its folder", path) from error
            raise self.failure(verb, path, error) from error


def _free(folder: Path) -> str:
    """Return the free space on the disk of a folder, or of its nearest existing parent."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    return f"{shutil.disk_usage(place).free / 1e6:.1f} MB"


def _create(path: Path, data: bytes) -> bool:
    """Create a file atomically; returns False if it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        whole.write_bytes(data)
        os.link(whole, path)
    except FileExistsError:
        return False
    except OSError as error:
        if whole.exists() and error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            reason = "this file system has no hard links, by which a store creates a file exactly once"
            raise OSError(error.errno, reason) from error
        raise
    finally:
        whole.unlink(missing_ok=True)
    return True


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _range(path: Path, start: int, end: int) -> bytes:
    with path.open("rb") as stream:
        stream.seek(start)
        return stream.read(end - start)


def _digest(path: Path) -> tuple[str, int]:
    sha256, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            sha256.update(block)
            size_bytes += len(block)
    return sha256.hexdigest(), size_bytes


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


def _files(folder: Path, root: Path) -> list[StoredFile]:
    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):  # deleted since its parent was listed
            raise error

    files = []
    for place, _, names in os.walk(folder, onerror=fail):
        within = Path(place).relative_to(root).as_posix()
        for name in names:
            try:
                status = os.lstat(f"{place}{os.sep}{name}")  # a Path a file would take three times as long
            except FileNotFoundError:
                continue
            modified = datetime.fromtimestamp(status.st_mtime, UTC)
            files.append(StoredFile(name if within == "." else f"{within}/{name}", status.st_size, modified))
    return sorted(files)
