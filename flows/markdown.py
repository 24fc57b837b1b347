"""The door to Prefect's pages: text of a store in Markdown, in which it is neither Markdown nor HTML nor a link."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from starpo.ragen.core.visible import shortened, visible

MAX_CELL = 120
"""Characters of a cell."""
_SPECIAL = re.compile(r"[\\`*_\[\]|~!#@]|(?<=:)/|(?<=www)\.", re.IGNORECASE)
_BLOCK = re.compile(r"^(?=[-+=*](?:[\s\-=*+]|$))|^(\d+)(?=[.)](?:\s|$))")
"""What makes a list, a rule or a heading of a line that begins with it."""


def text(value: object) -> str:
    """A value as text on one line, which is nothing but text."""
    line = " ".join(visible(shortened(str(value))).split())
    escaped = _SPECIAL.sub(lambda found: f"\\{found[0]}", html.escape(line))
    return _BLOCK.sub(lambda found: f"{found[1] or ''}\\", escaped)


def cell(value: object) -> str:
    """A value in a table, cut; nothing for None."""
    return "" if value is None else text(shortened(str(value), MAX_CELL))


def code(value: object) -> str:
    """A value as code, such as a path; in a table too."""
    line = " ".join(visible(str(value)).split()).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def link(label: object, address: str) -> str:
    """A link to an address of ours."""
    return f"[{text(label)}]({quote(visible(address), safe=':/%@?=&+,;~')})"


def table(header: Sequence[object], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> list[str]:
    """A table, a line a row.

    Args:
        header: Names of the columns.
        rows: Values, as many as there are columns; `Verbatim` are taken as they are.
        right: Numbers of the columns that are set to the right.
    """
    rules = ("---:" if number in right else "---" for number in range(len(header)))
    lines = [_row(map(cell, header)), _row(rules)]
    return lines + [_row(v if isinstance(v, Verbatim) else cell(v) for v in row) for row in rows]


def dict_table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The same of rows that name their columns; at least one."""
    return table(list(rows[0]), [list(row.values()) for row in rows])


class Verbatim(str):
    """Markdown that has been through this door already, such as `code`."""


def seen(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Rows for a table of Prefect's, whose cells and names of columns it takes for text."""
    return [{_seen(name): _seen(value) for name, value in row.items()} for row in rows]


def artifact_key(name: str) -> str:
    """A name as the key of an artifact, in which Prefect allows small letters, digits and dashes."""
    return "".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower())


def _seen(value: str) -> str:
    return visible(shortened(value, MAX_CELL))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
