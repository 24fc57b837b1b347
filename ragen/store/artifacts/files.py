"""The files of an artifact on this machine: hashing, comparison with what was written, detection of changes."""

from collections.abc import Iterable
from pathlib import Path

from starpo.schemas.manifest import FileEntry


def digests_of(entries: Iterable[FileEntry]) -> list[tuple[str, str]]:
    """Return name and SHA-256 of each file: equal for equal content, wherever the files are."""
    return [(entry.name, entry.sha256) for entry in entries]


def differences(entry: FileEntry, sha256: str, size_bytes: int) -> list[str]:
    """Describe in a sentence how a file differs from the one that was written; empty if it does not."""
    if size_bytes != entry.size_bytes:
        return [f"{entry.name} has {size_bytes} bytes, expected {entry.size_bytes}"]
    if sha256 != entry.sha256:
        return [f"the content of {entry.name} has changed since it was written (sha256 differs)"]
    return []


def entries_of(folder: Path) -> list[FileEntry]:
    """Return the entries of all files of a folder, hashed, sorted by name."""
    return [entry_of(file, folder) for file in sorted(folder.rglob("*")) if file.is_file()]


def entry_of(file: Path, folder: Path) -> FileEntry:
    """Return the entry of a file of a folder, hashed.

    Raises:
        OSError: If it cannot be read.
    """
    return FileEntry.of(file, file.relative_to(folder).as_posix())


def states_of(folder: Path, entries: Iterable[FileEntry]) -> tuple[tuple[int, ...], ...]:
    """Return device, inode, size in bytes and modification time (ns) of files, which change when a file is touched.

    Raises:
        FileNotFoundError: If one is missing.
    """
    states = [(folder / entry.name).stat() for entry in entries]
    return tuple((state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns) for state in states)
