"""User files and data sets that an environment reads its data from, identified by a digest kept in the settings.

path --kept_digest--> settings.digest, hence every key        path, digest --read_rows--> usable rows
settings --check_files--> nothing, or the file that is missing or has changed
"""

import base64
import hashlib
import json
import logging
from codecs import BOM_UTF8
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.ragen.core.errors import EnvironmentFault, SourceMissingError
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.data_sets import PREFIX, data_set_rows

_log = logging.getLogger(__name__)
_DIGITS = 16
_MAX_NAMED = 5
_PARQUET = b"PAR1"
_EXPECTED = "expected a list of objects or one object a line as JSON in UTF-8, or a Parquet file (PAR1 at both ends)"
_NO_JSON = "no JSON"

Row = dict[str, Any]
"""Field -> value, as in the file."""


def kept_digest(path: str, digest: str) -> str:
    """Return the digest to keep in the settings: the given one, or that of the file's current content.

    Args:
        path: File that the settings name; "" for none.
        digest: Digest in the settings; "" if not set yet.

    Raises:
        ValueError: If the file cannot be read, or there is a digest and no file.
    """
    if digest and not path:
        raise ValueError("it is the digest of a file that these settings do not name; name the file, or leave it out")
    return file_digest(path) if path and not digest else digest


def file_digest(path: str) -> str:
    """Return a digest of a file's bytes, or of a data set's rows, 16 hexadecimal digits.

    Raises:
        ValueError: If it cannot be read.
    """
    return hashlib.sha256(_read(path)).hexdigest()[:_DIGITS]


def check_files(settings: EnvironmentSettings) -> None:
    """Check that the files that settings of an environment name are there, with the content that they had.

    Raises:
        SourceMissingError: If one cannot be read.
        EnvironmentFault: If one has changed.
    """
    for part in settings.tagged().values():
        for path, digest in part.files.items():
            if getattr(part, path):
                _checked(getattr(part, path), getattr(part, digest))


def read_rows(path: str, digest: str, check: Callable[[Row], str], *, should_warn: bool = True) -> list[Row]:
    """Read the usable rows of a JSON file (a list of objects), a JSON Lines file (one object per line), a Parquet file
    or a data set (`data_sets`).

    Unusable rows are skipped; a warning gives their number and names the first five.

    Args:
        path: Path of the file, or name of the data set.
        digest: Digest of its content when the settings were made.
        check: Returns what is wrong with a row; "" if nothing is.
        should_warn: Whether to warn of unusable rows. False for a reader after which another reads the same file.

    Raises:
        SourceMissingError: If the file cannot be read.
        EnvironmentFault: If it has changed, is damaged or of another format, or has no usable row.
    """
    content = _checked(path, digest)
    rows: list[Row] = []
    faults: list[str] = []
    for place, row in _rows(path, content):
        fault = row if isinstance(row, str) else check(row)
        if fault:
            faults.append(f"{place}: {fault}")
        elif not isinstance(row, str):
            rows.append(row)
    if faults:
        named = "; ".join(faults[:_MAX_NAMED]) + ("; ..." if len(faults) > _MAX_NAMED else "")
        summary = f"{path}: {len(faults)} of {len(faults) + len(rows)} rows cannot be used ({named})"
        if not rows:
            raise EnvironmentFault(f"{summary}, and nothing is left to play")
        if should_warn:
            _log.warning("%s; the other %d are played", summary, len(rows))
    if not rows:
        raise EnvironmentFault(f"{path} holds no rows, in {len(content):,} bytes; {_EXPECTED}")
    return rows


def _checked(path: str, digest: str) -> bytes:
    """Return the content of a file that has this digest."""
    try:
        content = _read(path)
    except ValueError as error:
        where = "a relative path begins in the folder of the command"
        raise SourceMissingError(f"{error}. The settings name it with the digest {digest}; {where}") from error
    actual = hashlib.sha256(content).hexdigest()[:_DIGITS]
    if actual != digest:
        raise EnvironmentFault(
            f"{path} has changed: it has the digest {actual}, but the settings name {digest}. Restore the original "
            "file, or leave the digest out of the settings to use the file as it is now"
        )
    return content


def _read(path: str) -> bytes:
    """Return the content of a file; of a data set, its rows as JSON lines."""
    if path.startswith(PREFIX):
        try:
            return _data_set_lines(path)
        except EnvironmentFault as error:
            raise ValueError(str(error)) from error
    try:
        return Path(path).read_bytes()
    except OSError as error:
        folder = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
        raise ValueError(
            f"{path} cannot be read{folder} ({error.strerror or error}); name a file that stages can read"
        ) from error


@lru_cache(maxsize=4)
def _data_set_lines(source: str) -> bytes:
    return "\n".join(json.dumps(row, default=_text_of) for row in data_set_rows(source)).encode()


def _text_of(value: Any) -> str:
    """Return a value that JSON cannot hold as text: bytes in base64, times and decimals; of others the type alone."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, date | time | Decimal) else f"<{type(value).__name__}>"


def _rows(path: str, content: bytes) -> list[tuple[str, Row | str]]:
    """Return for each row its position in the file, and the row or what is wrong with it.

    Raises:
        EnvironmentFault: If the file as a whole is damaged, or of another format.
    """
    if content.startswith(_PARQUET):
        return _parquet_rows(path, content)
    rows = _json_rows(path, content)
    faults = [f"{place}: {row}" for place, row in rows if isinstance(row, str) and row.startswith(_NO_JSON)]
    if rows and len(faults) == len(rows):
        what = "no Parquet file" if path.lower().endswith(".parquet") else "neither JSON nor Parquet"
        raise EnvironmentFault(f"{path} is {what}: it begins with {content[:12]!r} ({faults[0]}); {_EXPECTED}")
    return rows


def _json_rows(path: str, content: bytes) -> list[tuple[str, Row | str]]:
    content = content.removeprefix(BOM_UTF8)
    if content.lstrip()[:1] == b"[":
        try:
            listed = json.loads(content.decode())
        except (ValueError, RecursionError) as error:
            raise EnvironmentFault(f"{path} begins as a JSON list, but is damaged or not whole: {error}") from error
        return [(f"row {number}", _object(row)) for number, row in enumerate(listed, 1)]
    rows: list[tuple[str, Row | str]] = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append((f"line {number}", _object(json.loads(line.decode()))))
        except (ValueError, RecursionError) as error:
            rows.append((f"line {number}", f"{_NO_JSON}: {error}"))
    return rows


def _parquet_rows(path: str, content: bytes) -> list[tuple[str, Row | str]]:
    try:
        table = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise EnvironmentFault(
            f"{path} begins as a Parquet file, but is damaged or not whole: {len(content):,} bytes, of which the last "
            f"are {content[-4:]!r} (a whole file ends with {_PARQUET!r}): {error}"
        ) from error
    return [(f"row {number}", row) for number, row in enumerate(table.to_pylist(), 1)]


def _object(row: Any) -> Row | str:
    return row if isinstance(row, dict) else f"a {type(row).__name__}, no object"
