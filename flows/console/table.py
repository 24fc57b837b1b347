"""Rows in a terminal: a table if it fits, else one record per row. No column is dropped and no word broken.

rows -> cells as text -> words -> widths of the columns -> table, or records if no widths fit
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from starpo.flows.console.terminal import MAX_CELL, Console, as_json_value, json_text, say
from starpo.ragen.core.visible import MAX_TEXT, shortened, visible

_WORD = re.compile(r"\[[^\[\]\s]{1,12} [^\[\]\s]{1,12}\]\S*|\S+")
"""Words for wrapping; an interval counts as one word."""
_READABLE = 16
"""Column width, in characters, at which text of any length is readable."""
_FEW_LINES = 2
"""Maximum number of lines per cell for which a narrower column is still readable."""
_ARRANGED = 24
"""Multi-line text, such as a map, keeps its lines up to this width."""
_GAPS = (2, 1)
"""Spaces between columns; the first that fits is used."""
_EDGES = 2
"""Terminal columns taken by a table's left and right edge."""


def print_table(
    console: Console,
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str = "",
    names: Sequence[str] = (),
    numbers: Collection[str] = (),
    are_names_exact: bool = False,
) -> None:
    """Print rows so that all of them are readable at the console's width.

    Args:
        console: The console.
        rows: Values by column.
        title: Title above the rows.
        names: Names of the columns. Empty for those of the first row.
        numbers: Columns of numbers already formatted as text; columns with numeric values are detected.
        are_names_exact: Show the columns' exact names, so that they can be typed; else with spaces for underscores.
    """
    names = list(names or rows[0])
    headers = [visible(name) if are_names_exact else visible(name).replace("_", " ") for name in names]
    if title:
        console.print(Text(wrapped(visible(title), console.width), style="italic"), soft_wrap=True)
    if not rows:
        say(console, f"no rows; the columns are {', '.join(headers)}")
        return
    columns = [[_shown(row.get(name)) for row in rows] for name in names]
    for gap in _GAPS:
        widths = _widths(headers, columns, console.width - _EDGES - gap * (len(names) - 1))
        if widths is not None:
            is_number = [name in numbers or _has_numbers(row.get(name) for row in rows) for name in names]
            console.print(_table(headers, columns, widths, is_number, gap))
            return
    for place in range(len(rows)):
        _print_record(console, [" ".join(header.split()) for header in headers], [column[place] for column in columns])


def print_record(console: Console, row: Mapping[str, Any]) -> None:
    """Print a row as lines of name and value."""
    headers = [visible(name).replace("_", " ") for name in row]
    _print_record(console, headers, [_shown(value, MAX_TEXT) for value in row.values()])


def cell(value: Any) -> str:
    """Format a value for people: empty for null, floats with four significant digits, lists and structs as JSON."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case list() | dict() | tuple():
            return json_text(as_json_value(value))
        case _:
            return str(as_json_value(value))


def _shown(value: Any, limit: int = MAX_CELL) -> str:
    """Return the sanitised text of a cell; very long text is shortened to its beginning and end."""
    return visible(shortened(cell(value), limit))


def wrapped(text: str, width: int) -> str:
    """Wrap text between words to lines of at most `width` terminal columns; a longer word gets its own line.

    A line that is short enough is unchanged, including its spaces.
    """
    return "\n".join(line for given in text.split("\n") for line in _lines(given, width))


def _lines(text: str, width: int) -> Iterator[str]:
    if _size(text) <= width:
        yield text
        return
    line, length = "", 0
    for word in _WORD.findall(text):
        size = _size(word)
        if line and length + 1 + size > width:
            yield line
            line, length = "", 0
        line, length = (f"{line} {word}", length + 1 + size) if line else (word, size)
    yield line


def _widths(headers: Sequence[str], columns: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return a width per column at which words stay whole and text is readable; None if there is not enough room."""
    wanted = [max(map(_width, (header, *cells))) for header, cells in zip(headers, columns, strict=True)]
    if sum(wanted) <= room:
        return wanted
    widths = [_least(header, cells) for header, cells in zip(headers, columns, strict=True)]
    spare = room - sum(widths)
    if spare < 0:
        return None
    by_want = sorted(range(len(widths)), key=lambda n: wanted[n] - widths[n])
    for place, n in enumerate(by_want):  # width that a column does not need is left for wider ones
        given = min(wanted[n] - widths[n], spare // (len(by_want) - place))
        widths[n] += given
        spare -= given
    return widths


def _least(header: str, cells: Sequence[str]) -> int:
    """Return the minimum width at which a column is readable."""
    longest_word = max((_size(word) for text in (header, *cells) for word in _WORD.findall(text)), default=1)
    arranged = max((width for text in cells if "\n" in text and (width := _width(text)) <= _ARRANGED), default=0)
    longest_word = max(longest_word, arranged)
    readable = max(longest_word, min(_READABLE, max(map(_width, cells))))
    for width in range(longest_word, readable):
        if all(_width(text) <= width * _FEW_LINES and _num_lines(text, width) <= _FEW_LINES for text in cells):
            return width
    return readable


def _num_lines(text: str, width: int) -> int:
    """Return the largest number of lines into which a line of the text is wrapped."""
    return max(sum(1 for _ in _lines(line, width)) for line in text.split("\n"))


def _width(text: str) -> int:
    return max(map(_size, text.split("\n")))


def _size(text: str) -> int:
    """Return the number of terminal columns that a text occupies."""
    return len(text) if text.isascii() else cell_len(text)


def _table(
    headers: Sequence[str],
    columns: Sequence[Sequence[str]],
    widths: Sequence[int],
    is_number: Sequence[bool],
    gap: int,
) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for header, width, is_right in zip(headers, widths, is_number, strict=True):
        justify = "right" if is_right else "left"
        table.add_column(Text(wrapped(header, width)), justify=justify, width=width)  # type: ignore[arg-type]
    for cells in zip(*columns, strict=True):
        table.add_row(*(Text(wrapped(text, width)) for text, width in zip(cells, widths, strict=True)))
    return table


def _print_record(console: Console, headers: Sequence[str], cells: Sequence[str]) -> None:
    """Print a row as lines of name and value, then an empty line; if a word does not fit, the value goes below."""
    beside = max(map(_size, headers)) + 2
    for header, text in zip(headers, cells, strict=True):
        room = console.width - beside
        has_room = max((_size(word) for word in _WORD.findall(text)), default=0) <= room
        indent, lead = (beside, header + " " * (beside - _size(header))) if has_room else (2, f"{header}\n  ")
        value = wrapped(text, max(1, console.width - indent)).replace("\n", "\n" + " " * indent)
        console.print(Text(lead, style="dim").append(value, style="not dim"), soft_wrap=True)
    console.print()


def _has_numbers(values: Iterator[Any]) -> bool:
    return any(isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values)
