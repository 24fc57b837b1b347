"""Copies of remote artifacts on this machine, `~/.cache/starpo/<manifest digest>/`, which may be deleted at any time.

Artifacts that this process stored or fetched are kept for the next stage. Above `STARPO_CACHE_GB` the least recently
used copies are deleted, except those used within the last hour: other processes may be reading them.
"""

import hashlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from starpo.ragen.config.runtime import Runtime

IN_USE_S = 3600.0
"""A copy requested within this many seconds is kept."""
TRIM_EVERY_S = 300.0
"""Interval at which a process checks the size of the cache."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ABANDONED_S = 24 * 3600.0
_SMALL_FILE = "content"
_next_trim = 0.0

_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the folder of the copies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "starpo"


def scratch_folder() -> Path:
    """Create an empty folder beside the copies, to be adopted or removed."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="part-", dir=cache_folder()))


def copy_of(digest: str) -> Path | None:
    """Return the copy of the artifact with this manifest digest, and mark it as just used; None if there is none."""
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
        if not copy.is_dir():  # otherwise another process has just made the same copy
            raise
    os.utime(copy)
    if time.monotonic() > _next_trim:
        _next_trim = time.monotonic() + TRIM_EVERY_S
        trim(round(Runtime.current().cache_gb * 1e9))
    return copy


def small_file(name: str, fetch: Callable[[], bytes]) -> bytes:
    """Return what was fetched under this name by any process of this machine; it is a copy like the others.

    Args:
        name: What it is, with the address of its store.
        fetch: Returns it if there is no copy.
    """
    digest = digest_of(name)
    copy = copy_of(digest)
    try:
        if copy is not None:
            return (copy / _SMALL_FILE).read_bytes()
    except OSError:  # just trimmed
        pass
    data = fetch()
    try:
        part = scratch_folder()
        try:
            (part / _SMALL_FILE).write_bytes(data)
            adopt(part, digest)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:  # it is read again next time
        _log.warning("cannot be kept in %s: %s", cache_folder(), error)
    return data


def digest_of(name: str) -> str:
    """Return the digest by which `forget` knows the copy of a small file."""
    return hashlib.sha256(f"{_SMALL_FILE} {name}".encode()).hexdigest()


def forget(digest: str) -> None:
    """Remove a copy."""
    shutil.rmtree(cache_folder() / digest, ignore_errors=True)


def trim(limit_bytes: int) -> None:
    """Delete least recently used copies until the cache is within the limit, and leftovers of killed processes."""
    now, copies = time.time(), []
    for folder in cache_folder().iterdir():
        try:
            used = folder.stat().st_mtime
            size_bytes = sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
        except OSError:  # just deleted
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
            "the cache %s takes up %.1f GB, more than STARPO_CACHE_GB, and all of it is in use",
            cache_folder(),
            total / 1e9,
        )
