"""`NewestPolicies`: the policies that a run's updates have just made, in folders of this process.

update --new--> folder of the policy --find--> rollout, evaluation, probe

A checkpoint that its run does not keep is not written to the store. Its policy is written here: into memory
(`/dev/shm`) where there is ample room, else into a temporary folder. Workers on this machine read it there.

The folders go with the run, at the latest with the process. Those of a killed process stay until another run begins on
this machine: a process holds a lock on its own, so a folder whose lock can be taken has no owner.
"""

import atexit
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from starpo.ragen.core.errors import StoreError

_MEMORY = Path("/dev/shm")
_PREFIX = f"starpo-policies-{os.getuid()}-"
_LOCK = "lock"
_NUM_KEPT = 2
"""With `rollout.staleness` = 1, an update makes a policy while the one before it plays."""
_AMPLE = 4
"""Policies that memory must have room for: those that are kept, one that is being written, and one to spare."""


class NewestPolicies:
    """The newest policies of a run, by the keys of their checkpoints."""

    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}
        self._root: Path | None = None
        self._pid = self._owning = 0
        self._lock = RLock()

    def find(self, key: str) -> str | None:
        """Return the folder of a checkpoint's policy; None if it is not here (any more)."""
        folder = self._folders.get(key)
        return str(folder) if folder is not None and folder.is_dir() else None

    @contextmanager
    def new(self, key: str, size_bytes: int) -> Iterator[Path]:
        """Context manager: an empty folder, which `find` finds once the block has succeeded; else it is removed.

        Args:
            key: Key of the checkpoint.
            size_bytes: Size of the policy, about.

        Raises:
            StoreError: If the block cannot write into it.
        """
        try:
            with self._lock:
                folder = Path(tempfile.mkdtemp(prefix=f"{key[:12]}-", dir=self._opened(size_bytes)))
        except OSError as error:
            raise _unwritable(tempfile.gettempdir(), error) from error
        try:
            yield folder
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise _unwritable(folder, error) from error
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        with self._lock:
            self.discard(key)
            self._folders[key] = folder
            for old in list(self._folders)[:-_NUM_KEPT]:
                self.discard(old)

    def discard(self, key: str) -> None:
        """Remove a policy, if it is here."""
        folder = self._folders.pop(key, None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def clear(self) -> None:
        """Remove all policies."""
        with self._lock:
            root, self._root, self._folders = self._root, None, {}
            atexit.unregister(self.clear)
            if root is not None and self._pid == os.getpid():  # a forked process has no share in them
                shutil.rmtree(root, ignore_errors=True)
                os.close(self._owning)

    def _opened(self, size_bytes: int) -> Path:
        """Return the folder for this process's policies, created at the first call."""
        if self._root is None or self._pid != os.getpid() or not self._root.is_dir():
            places = _places()
            is_ample = shutil.disk_usage(places[-1]).free > _AMPLE * size_bytes
            try:
                self._root, self._owning = _owned_folder(places[-1 if is_ample else 0])
            except OSError:  # others have left no room for one more file in memory
                self._root, self._owning = _owned_folder(places[0])
            self._pid, self._folders = os.getpid(), {}
            atexit.register(self.clear)
        return self._root


def _owned_folder(place: Path) -> tuple[Path, int]:
    """Create a folder in this place; return it, and the descriptor of its lock, which this process holds."""
    while True:
        root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        with suppress(FileNotFoundError):  # taken for ownerless, and removed, before it was locked
            lock = _lock_of(root)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (root / _LOCK).exists():
                return root, lock
            os.close(lock)


def remove_ownerless() -> None:
    """Remove the folders of processes that have ended without removing them.

    Every user may write where they lie, so nothing there can make this fail, and only this user's folders are removed.
    """
    for place in _places():
        with suppress(OSError):
            for root in list(place.glob(f"{_PREFIX}*")):
                _remove_if_ownerless(root)


def _remove_if_ownerless(root: Path) -> None:
    with suppress(OSError):  # it has an owner, is being removed, or is no such folder
        lock = _lock_of(root)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(root, ignore_errors=True)
        finally:
            os.close(lock)


def _places() -> list[Path]:
    """Return the folders in which policies may lie; the last one is the best."""
    return [Path(tempfile.gettempdir()), *([_MEMORY] if os.access(_MEMORY, os.W_OK) else [])]


def _lock_of(root: Path) -> int:
    """Open the lock of a folder, and create it if necessary; links are not followed.

    Raises:
        OSError: If this is no folder of this user's.
    """
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "another user's folder", str(root))
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(_LOCK, flags, mode=0o600, dir_fd=folder)
    finally:
        os.close(folder)


def _unwritable(folder: str | Path, error: OSError) -> StoreError:
    return StoreError(
        f"the new policy cannot be written to {folder}: {error}. Free some space there, or set TMPDIR to a folder with "
        "room, and run the same command again; what is stored is not done again"
    )
