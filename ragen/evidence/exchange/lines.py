"""External files, read piece by piece: JSON lines or whole documents, with a size limit and a separate fault per piece.

FILE.jsonl | FOLDER/*.json -> pieces -> (place, value) or (place, fault)
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from starpo.ragen.core.errors import DataError

MAX_PIECE_BYTES = 64 * 2**20
"""Maximum size of a line, or of a file that is one document; longer ones are set aside and not read into memory."""

_SHOWN_BYTES = 2_000


@dataclass(frozen=True)
class Piece:
    """A line or a document.

    Attributes:
        place: File and line.
        value: Parsed JSON; None if it cannot be read.
        fault: Why it cannot be read; '' if it can.
        beginning: Its first characters, kept with a fault.
    """

    place: str
    value: Any
    fault: str
    beginning: str


def json_lines(file: Path) -> Iterator[Piece]:
    """Read each line of a file; blank lines are skipped.

    Raises:
        DataError: If the file cannot be opened.
    """
    try:
        with file.open("rb") as stream:
            yield from stream_lines(stream, file.name)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from error


def stream_lines(stream: IO[bytes], name: str) -> Iterator[Piece]:
    """Read each line of an open file or pipe of that name; blank lines are skipped."""
    number = 0
    while line := stream.readline(MAX_PIECE_BYTES + 1):
        number += 1
        place = f"{name}:{number}"
        if len(line) > MAX_PIECE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_PIECE_BYTES)
            yield Piece(place, None, f"is longer than {MAX_PIECE_BYTES // 2**20} MiB", "")
        elif line.strip():
            yield parsed(place, line)


def documents(path: Path) -> Iterator[Piece]:
    """Read a file that is one document, or all `*.json` of a folder, recursively and by name, except symlinks.

    Raises:
        DataError: If a file cannot be read.
    """
    is_folder = path.is_dir()
    for file in sorted(path.rglob("*.json")) if is_folder else [path]:
        if is_folder and (file.is_symlink() or not file.is_file()):
            continue
        place = str(file.relative_to(path.parent))
        try:
            if file.stat().st_size > MAX_PIECE_BYTES:
                yield Piece(place, None, f"is longer than {MAX_PIECE_BYTES // 2**20} MiB", "")
            else:
                yield parsed(place, file.read_bytes())
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error.strerror})") from error


def parsed(place: str, data: bytes) -> Piece:
    """Parse a piece of JSON in UTF-8. Constants that are not valid JSON (NaN, Infinity) are faults."""
    beginning = data[:_SHOWN_BYTES].decode("utf-8", "replace")
    try:
        return Piece(place, json.loads(data, parse_constant=_refused), "", beginning)
    except RecursionError:
        return Piece(place, None, "is nested too deeply", beginning)
    except UnicodeDecodeError:
        return Piece(place, None, "is not UTF-8", beginning)
    except ValueError as error:
        return Piece(place, None, f"is not JSON ({str(error).partition(':')[0]})", beginning)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")
