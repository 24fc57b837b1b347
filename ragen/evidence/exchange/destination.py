"""Where an export goes: a folder that was not there before, with names that no text of a run can lead astray."""

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starpo.ragen.core.errors import ConfigError

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_CHARACTERS = 60


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Make a folder, and remove it again where the block fails.

    Raises:
        ConfigError: If something is there already, or it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except FileExistsError as error:
        raise ConfigError(f"{path} is there already, and an export overwrites nothing: name a new folder") from error
    except OSError as error:
        raise ConfigError(f"the folder {path} cannot be made ({error.strerror})") from error
    try:
        yield path
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def file_name(number: int, name: str) -> str:
    """A JSON file's name for an untrusted one: a number, what of it is plain, and its digest; no two are the same.

    Args:
        number: Of the file, for the order of a listing.
        name: Such as a trajectory's id.
    """
    plain = _UNSAFE.sub("-", name)[:_MAX_CHARACTERS].strip("-")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{number:06d}-{plain or 'trajectory'}-{digest}.json"
