"""Files and folders that commands write for users: there completely, or not at all.

Content is written under a hidden name, `.unfinished-...`, and renamed once it is complete. A killed command leaves that
behind, which may be deleted, and nothing under the name that the user gave.
"""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from starpo.ragen.core.errors import ConfigError

_UNFINISHED = ".unfinished-"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Context manager: the name for a new file that replaces `path` once the block has succeeded; else it is removed.

    A link at `path` stays, and an existing file passes on its permissions.

    Raises:
        OSError: If the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    unfinished = _hidden(target.parent)
    try:
        yield unfinished
        with suppress(FileNotFoundError):
            shutil.copymode(target, unfinished)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Context manager: an empty folder that becomes `path` once the block has succeeded; else it is removed.

    Args:
        path: Folder to create, or an existing one that `is_vacant`.

    Raises:
        ConfigError: If the folder cannot be created, its disk is full, or `path` has been filled meanwhile.
    """
    is_new = not path.exists()
    unfinished = _hidden(path.parent if is_new else path)
    with _explained(path):
        unfinished.mkdir(parents=True)
    try:
        with _explained(path, errno.ENOSPC, errno.EDQUOT):
            yield unfinished
        with _explained(path):
            if is_new:
                unfinished.rename(path)
            else:  # it may be a mount, or the working folder, which nothing can replace
                for entry in list(unfinished.iterdir()):
                    entry.rename(path / entry.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def is_vacant(path: Path) -> bool:
    """Whether a path is free, or a folder with at most what killed commands have left in it."""
    if not os.path.lexists(path):
        return True
    return path.is_dir() and all(entry.name.startswith(_UNFINISHED) for entry in path.iterdir())


def _hidden(folder: Path) -> Path:
    return folder / f"{_UNFINISHED}{uuid.uuid4().hex}"


@contextmanager
def _explained(path: Path, *codes: int) -> Iterator[None]:
    """Context manager: convert errors of the system; with `codes`, these alone."""
    try:
        yield
    except OSError as error:
        if codes and error.errno not in codes:
            raise
        raise ConfigError(f"the folder {path} cannot be written ({error.strerror}): name another one") from error
