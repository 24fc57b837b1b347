"""Target folder of an export: always a new folder, with file names that are safe for untrusted text."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.outputs import whole_folder

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_CHARACTERS = 60


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Context manager: an empty folder that becomes `path` once the block has succeeded; else it is removed.

    Raises:
        ConfigError: If the path exists already, or the folder cannot be created or written.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{path} already exists, and an export overwrites nothing: name a new folder")
    with whole_folder(path) as folder:
        yield folder


def file_name(number: int, name: str) -> str:
    """Return a safe, unique name of a JSON file: a number, the safe characters of an untrusted name, and its digest.

    Args:
        number: Number of the file, which determines the order of a listing.
        name: Untrusted name, such as the id of a trajectory.
    """
    plain = _UNSAFE.sub("-", name)[:_MAX_CHARACTERS].strip("-")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{number:06d}-{plain or 'trajectory'}-{digest}.json"
