"""Provenance of an artifact: the volatile part of a manifest, outside every digest.

Versions, hardware, threads and time; never environment variables, user or host names, paths or secrets.
"""

import hashlib
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from starpo.ragen.config.device import Device
from starpo.ragen.config.processor import Processor
from starpo.ragen.core.registry import ENGINES, LEARNERS, PLUGGABLE

_PACKAGES = ("starpo", "transformers", "numpy", "pyarrow", "pandera", "polars", "prefect", *ENGINES, *LEARNERS)
_CODE_FOLDERS = ("flows", "ragen", "schemas", "starpo", "tasks")


def collect() -> dict[str, Any]:
    """Collect the current facts, as JSON.

    Torch is queried only if it is already loaded, so that storing a table does not import it.
    """
    return {
        "written_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "versions": versions(),
        "code": code_revision(),
        "hardware": {**_machine(), **_accelerator()},
        "threads": {
            "torch": _torch_threads(),
            "cpus": len(os.sched_getaffinity(0)) if _has_affinity() else os.cpu_count(),
        },
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python, of packages that affect results, and of packages that add names to registries;
    missing packages are skipped."""
    version_of = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            version_of[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    for registry in PLUGGABLE:
        version_of |= dict(package.rsplit(" ", 1) for package in registry.packages.values())
    return version_of


@cache
def code_revision() -> str | None:
    """Return `revision_of` of the source tree that this code is in."""
    return revision_of(Path(__file__).resolve().parents[3])


def revision_of(root: Path) -> str | None:
    """Return the commit of a source tree; None if it is no git checkout.

    If files differ from the commit, or code was added, `-modified-` and eight digits of a digest of that follow; if
    this cannot be determined, `-unchecked` follows.
    """
    if not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _changes(root)
    if changes is None:
        return f"{commit.decode()}-unchecked"
    return commit.decode() + (f"-modified-{hashlib.sha256(changes).hexdigest()[:8]}" if changes else "")


def _changes(root: Path) -> bytes | None:
    """Return what differs from the commit, with the content of added code; None if that cannot be determined."""
    edited = _git(root, "diff", "HEAD")
    added = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *_CODE_FOLDERS)
    if edited is None or added is None:
        return None
    try:
        contents = [name + b"\0" + (root / os.fsdecode(name)).read_bytes() for name in added.split(b"\0") if name]
    except OSError:
        return None
    return b"\0".join([edited, *contents]) if contents else edited


def _git(root: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None  # no git, a tree owned by another user, or a machine too busy to answer in time
    return done.stdout.strip()


@cache
def _machine() -> dict[str, Any]:
    of_one = {"machine": platform.machine(), "system": platform.system(), **Processor.here().facts()}
    return {**of_one, "cpus": os.cpu_count()}


def _accelerator() -> dict[str, Any]:
    return Device.here().facts() if "torch" in sys.modules else {}


def _torch_threads() -> int | None:
    torch = sys.modules.get("torch")
    return None if torch is None else torch.get_num_threads()


def _has_affinity() -> bool:
    return hasattr(os, "sched_getaffinity")
