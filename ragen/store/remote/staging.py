"""Context manager for the folder in which a new artifact's files are made.

Location.new_folder -> the block's files -> Location.commit        an error of the disk -> StoreError
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starpo.ragen.core.faults import os_error_of
from starpo.ragen.store.remote.location import Location


@contextmanager
def staged(location: Location) -> Iterator[Path]:
    """Context manager: an empty folder on this machine for an artifact's files; removed at the end if not committed.

    Raises:
        StoreError: If it, or what the block writes, cannot be written.
    """
    try:
        folder = location.new_folder()
    except OSError as error:
        raise location.failure("write", "tmp", error) from error
    try:
        yield folder
    except Exception as error:
        cause = os_error_of(error)
        if cause is None or (cause is error and not _is_of_the_disk(cause, location)):
            raise
        raise location.failure("write", f"tmp/{folder.name}", cause) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_of_the_disk(error: OSError, location: Location) -> bool:
    """Whether the error concerns the folder for artifacts. Code that makes an artifact may raise others, from its own
    files or a network."""
    if isinstance(error.filename, str | bytes | os.PathLike):
        return location.holds(Path(os.fsdecode(error.filename)).absolute())
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)
