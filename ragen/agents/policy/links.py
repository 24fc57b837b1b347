"""Symbolic links to a policy's files, so that folders are put together without copies.

file, place --link--> a link at the place, or an error that names the disk
"""

from pathlib import Path

from starpo.ragen.core.errors import PolicyError


def link(place: Path, file: Path) -> None:
    """Make a symbolic link to a file.

    Args:
        place: Where; its folder exists.
        file: The file; its own links are resolved.

    Raises:
        PolicyError: If the disk has no symbolic links, such as exFAT, or the system forbids them.
    """
    try:
        place.symlink_to(file.resolve())
    except FileExistsError:
        raise
    except OSError as error:
        raise PolicyError(
            f"'{place.parent}': a symbolic link to '{file}' cannot be made ({error.strerror}); let XDG_CACHE_HOME and "
            "TMPDIR name folders on a disk that has such links"
        ) from error
