"""Names that become folders of a store."""

import re
from collections.abc import Iterable

from starpo.ragen.core.errors import StoreError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGITS = re.compile("[0-9]{1,18}")
_RESERVED = ("tmp", "runs", "quarantine", "ablations", "sweeps", "answers")


def is_name(text: str) -> bool:
    """Whether the text is a valid folder name here. Other folders in a store are ignored."""
    return _NAME.fullmatch(text) is not None


def is_kind(text: str) -> bool:
    """Whether the text is a valid kind of artifacts: a name that no other folder of a store has."""
    return is_name(text) and text not in _RESERVED


def numbers_of(names: Iterable[str], digits: int) -> list[int]:
    """Return the numbers that files are named by, such as 12 for `00012.json`; other files are ignored.

    Args:
        names: Names of files.
        digits: Digits of a number, zeros in front included; a large number has more.
    """
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return [int(stem) for stem in stems if _DIGITS.fullmatch(stem) and stem == f"{int(stem):0{digits}d}"]


def checked_name(name: str, what: str) -> str:
    """Return the name if it is a valid folder name.

    Raises:
        StoreError: Otherwise.
    """
    if not (is_kind(name) if what == "kind" else is_name(name)):
        raise StoreError(
            f"'{name}' cannot be a {what}: expected 1-128 letters, digits, '.', '_' or '-', beginning with a letter or "
            f"digit{', and none of ' + ', '.join(_RESERVED) if what == 'kind' else ''}"
        )
    return name


def differing_by_case(name: str, names: Iterable[str]) -> str | None:
    """Return the first of the names that differs from a name by case alone; None if there is none.

    A disk that ignores case, such as macOS's, keeps both in one folder.
    """
    return next((other for other in names if other != name and other.casefold() == name.casefold()), None)
