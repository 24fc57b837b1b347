"""Escaping of stored text for Prefect's pages, so that it is not read as Markdown, HTML or a link."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from starpo.ragen.core.visible import shortened, visible

MAX_CELL = 120
"""Maximum number of characters in a cell."""
_SPECIAL = re.compile(r"[\\`*_\[\]|~!#@]|(?<=:)/|(?<=www)\.", re.IGNORECASE)
_BLOCK = re.compile(r"^(?=[-+=*](?:[\s\-=*+]|$))|^(\d+)(?=[.)](?:\s|$))")
"""Prefixes that turn a line into a list, a rule or a heading."""


def text(value: object) -> str:
    """Escape a value as plain text on one line."""
    line = " ".join(visible(shortened(str(value))).split())
    escaped = _SPECIAL.sub(lambda found: f"\\{found[0]}", html.escape(line))
    return _BLOCK.sub(lambda found: f"{found[1] or ''}\\", escaped)


def cell(value: object) -> str:
    """Escape a value for a table cell, truncated; empty for None."""
    return "" if value is None else text(shortened(str(value), MAX_CELL))


def code(value: object) -> str:
    """Format a value, such as a path, as inline code; also valid in a table."""
    line = " ".join(visible(str(value)).split()).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def link(label: object, address: str) -> str:
    """Format a link to a trusted address."""
    return f"[{text(label)}]({quote(visible(address), safe=':/%@?=&+,;~')})"


def table(header: Sequence[object], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> list[str]:
    """Format a table, one line per row.

    Args:
        header: Names of the columns.
        rows: Values, one per column; `Verbatim` values are not escaped.
        right: Indices of right-aligned columns.
    """
    rules = ("---:" if number in right else "---" for number in range(len(header)))
    lines = [_row(map(cell, header)), _row(rules)]
    return lines + [_row(v if isinstance(v, Verbatim) else cell(v) for v in row) for row in rows]


def dict_table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Format rows given as dicts as a table; at least one row is required."""
    return table(list(rows[0]), [list(row.values()) for row in rows])


class Verbatim(str):
    """Markdown that is already escaped, such as the result of `code`."""


def seen(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Prepare rows for Prefect's table artifacts, which show cells and column names as plain text."""
    return [{_seen(name): _seen(value) for name, value in row.items()} for row in rows]


def artifact_key(name: str) -> str:
    """Convert a name to the key of a Prefect artifact: lower-case letters, digits and dashes."""
    return "".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower())


def _seen(value: str) -> str:
    return visible(shortened(value, MAX_CELL))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
