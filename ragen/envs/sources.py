"""Files of the user's that an environment plays from: what they hold is named by a digest, which the settings keep.

path --digest_of--> settings.digest, so every key        path, digest --read_rows--> rows, and what is unusable
"""

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starpo.ragen.core.errors import EnvironmentFault

_log = logging.getLogger(__name__)
_DIGITS = 16
_MAX_NAMED = 5

Row = dict[str, Any]
"""Field -> value, as in the file."""


def digest_of(path: str, digest: str) -> str:
    """The digest that settings keep of a file: the one they have, or that of the file as it is now.

    Args:
        path: That the settings name; "": none.
        digest: That they have; "": none yet.

    Raises:
        ValueError: If the file cannot be read, or there is a digest and no file.
    """
    if digest and not path:
        raise ValueError("it is the digest of a file that these settings do not name; name the file, or leave it out")
    return file_digest(path) if path and not digest else digest


def file_digest(path: str) -> str:
    """16 hexadecimal digits of a file's bytes.

    Raises:
        ValueError: If it cannot be read.
    """
    return hashlib.sha256(_read(path)).hexdigest()[:_DIGITS]


def read_rows(path: str, digest: str, check: Callable[[Row], str]) -> list[Row]:
    """The usable rows of a JSON file that holds a list of objects, or of a file with one object a line.

    What cannot be used is left out, and a warning says how much that is, and where it begins.

    Args:
        path: Of the file.
        digest: Of what it held when the settings were made.
        check: Of a row, what is wrong with it; "": nothing.

    Raises:
        EnvironmentFault: If the file cannot be read, holds something else than it did, or nothing usable.
    """
    try:
        content = _read(path)
    except ValueError as error:
        raise EnvironmentFault(str(error)) from error
    found = hashlib.sha256(content).hexdigest()[:_DIGITS]
    if found != digest:
        raise EnvironmentFault(
            f"{path} has changed: it has the digest {found}, and these settings are of {digest}. Put the file of then "
            "back, or leave the digest out of the settings, which makes them settings of the file as it is now"
        )
    rows: list[Row] = []
    faults: list[str] = []
    for place, row in _rows(content):
        fault = row if isinstance(row, str) else check(row)
        if fault:
            faults.append(f"{place}: {fault}")
        elif not isinstance(row, str):
            rows.append(row)
    if faults:
        named = "; ".join(faults[:_MAX_NAMED]) + ("; ..." if len(faults) > _MAX_NAMED else "")
        told = f"{path}: {len(faults)} of {len(faults) + len(rows)} rows cannot be used ({named})"
        if not rows:
            raise EnvironmentFault(f"{told}, and nothing is left to play")
        _log.warning("%s; the other %d are played", told, len(rows))
    if not rows:
        raise EnvironmentFault(f"{path} holds no rows; expected a list of objects, or one object a line")
    return rows


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror or error}); name a file that stages can read"
        ) from error


def _rows(content: bytes) -> list[tuple[str, Row | str]]:
    """Place of a row in the file, and the row or what is wrong with it."""
    if content.lstrip()[:1] == b"[":
        try:
            listed = json.loads(content)
        except (ValueError, RecursionError) as error:
            return [("row 1", f"no JSON: {error}")]
        return [(f"row {number}", _object(row)) for number, row in enumerate(listed, 1)]
    rows: list[tuple[str, Row | str]] = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append((f"line {number}", _object(json.loads(line))))
        except (ValueError, RecursionError) as error:
            rows.append((f"line {number}", f"no JSON: {error}"))
    return rows


def _object(row: Any) -> Row | str:
    return row if isinstance(row, dict) else f"a {type(row).__name__}, no object"
