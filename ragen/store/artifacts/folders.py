"""Folders of plain files, such as checkpoints: copied into an artifact, and digested."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.artifacts.files import entries_of, entry_of
from starpo.schemas.manifest import FileEntry


def copy_files(folder: Path, target: Path) -> list[FileEntry]:
    """Copy all files of a folder recursively; returns their entries, hashed, sorted by name.

    Raises:
        StoreError: If there are no files, or one is a link.
    """
    for file in _files(folder):
        copy = target / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return entries_of(target)


def hashed_files(folder: Path) -> list[FileEntry]:
    """Return the entries of all files of a folder recursively, hashed, sorted by name.

    Raises:
        StoreError: If there are no files, or one is a link.
    """
    return [entry_of(file, folder) for file in _files(folder)]


def folder_digest(folder: Path) -> str:
    """Return the content digest of a folder: over the names and contents of its files; 64 hex digits."""
    return digest_of(entries_of(folder))


def digest_of(entries: Sequence[FileEntry]) -> str:
    """Return the same digest for files that are already hashed, sorted by name."""
    total = hashlib.sha256()
    for entry in entries:
        total.update(f"{entry.name}\0".encode() + bytes.fromhex(entry.sha256))
    return total.hexdigest()


def _files(folder: Path) -> list[Path]:
    paths = sorted(folder.rglob("*")) if folder.is_dir() else []
    links = [path for path in paths if path.is_symlink()]
    if links:
        raise StoreError(f"{links[0]} is a link, but an artifact holds plain files only; replace it with its target")
    files = [path for path in paths if path.is_file()]
    if not files:
        raise StoreError(f"{folder} is not a folder with files in it, so there is nothing to store")
    return files
