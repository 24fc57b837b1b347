"""Copies of remote artifacts on this machine, `~/.cache/starpo/<manifest digest>/`, which may be deleted at any time.

What this process stored or fetched is kept for the next stage. Above `RAGEN_CACHE_GB` the copies that were not used for
longest go, but none that was used within the hour: other processes may be reading it.
"""

import logging
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from starpo.ragen.config.runtime import Runtime

IN_USE_S = 3600.0
"""A copy that was asked for within so many seconds stays."""
TRIM_EVERY_S = 300.0
"""How often a process looks at the size of the cache."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ABANDONED_S = 24 * 3600.0
_next_trim = 0.0

_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Where the copies are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "starpo"


def scratch_folder() -> Path:
    """A new empty folder beside the copies, to be adopted or removed."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="part-", dir=cache_folder()))


def copy_of(digest: str) -> Path | None:
    """The copy of the artifact whose manifest has this digest; None: there is none. It counts as used now."""
    folder = cache_folder() / digest
    try:
        os.utime(folder)
    except OSError:
        return folder if folder.is_dir() else None
    return folder


def adopt(folder: Path, digest: str) -> Path:
    """Make a scratch folder the copy, unless there is one."""
    global _next_trim
    copy = cache_folder() / digest
    try:
        folder.rename(copy)
    except OSError:
        if not copy.is_dir():  # else another process has made the same one meanwhile
            raise
    os.utime(copy)
    if time.monotonic() > _next_trim:
        _next_trim = time.monotonic() + TRIM_EVERY_S
        trim(round(Runtime.current().cache_gb * 1e9))
    return copy


def forget(digest: str) -> None:
    """Remove a copy."""
    shutil.rmtree(cache_folder() / digest, ignore_errors=True)


def trim(limit_bytes: int) -> None:
    """Remove copies until the others take up no more than the limit, and what killed processes left."""
    now, copies = time.time(), []
    for folder in cache_folder().iterdir():
        try:
            used = folder.stat().st_mtime
            size_bytes = sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
        except OSError:  # gone this moment
            continue
        if folder.name.startswith("part-"):
            if now - used > _ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)
        elif _DIGEST.fullmatch(folder.name):  # not folders that only link to copies
            copies.append((used, size_bytes, folder))
    total = sum(size_bytes for _, size_bytes, _ in copies)
    for used, size_bytes, folder in sorted(copies):
        if total <= limit_bytes:
            return
        if now - used > IN_USE_S:
            shutil.rmtree(folder, ignore_errors=True)
            total -= size_bytes
    if total > limit_bytes:
        _log.warning(
            "the cache %s takes up %.1f GB, more than RAGEN_CACHE_GB, and all of it is in use",
            cache_folder(),
            total / 1e9,
        )
