"""Folders of plain files, such as checkpoints: hashed, and digested."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.artifacts.files import entry_of
from starpo.schemas.manifest import FileEntry


def hashed_files(folder: Path) -> list[FileEntry]:
    """Return the entries of all files of a folder recursively, hashed, sorted by name.

    Raises:
        StoreError: If there are no files, or one is a link.
    """
    return [entry_of(file, folder) for file in _files(folder)]


def digest_of(entries: Sequence[FileEntry]) -> str:
    """Return a folder's content digest, over the names and contents of its files, sorted by name; 64 hex digits."""
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
