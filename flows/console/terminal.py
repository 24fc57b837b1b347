"""The only way to print to a terminal: output is plain data, without markup or terminal control sequences.

Commands print only through `Console`, `write` and `print_json` (a test enforces it), so they need no escaping
themselves. Styles are set with `style=` and with explicit `Text` objects.
"""

import json
import math
import sys
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TextIO

from pydantic import BaseModel
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.progress import TextColumn
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from starpo.ragen.core.visible import shortened, visible

MAX_CELL = 1_000
"""Maximum number of characters in a cell: rich takes minutes to wrap more in narrow columns."""


class Console(RichConsole):
    """Rich console that treats strings as plain text and sanitises all output."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a string to sanitised plain text, see `plain`."""
        return super().render_str(visible(shortened(text)), **{**options, "markup": False, "emoji": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield sanitised output segments; only rich's own control segments, such as cursor moves, are unchanged."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def status(self, status: RenderableType, **options: Any) -> Status:
        """Return a status line with a spinner; pass `plain` text to its `update`."""
        return super().status(plain(status) if isinstance(status, str) else status, **options)


def description_column() -> TextColumn:
    """Return the description column of a progress bar; rich's default column would interpret markup."""
    return TextColumn("{task.description}", markup=False)


def say(console: RichConsole, text: str) -> None:
    """Print a line as plain text; a terminal gets it wrapped between words, a file or pipe in one piece."""
    console.print(plain(text), soft_wrap=not console.is_terminal, overflow="ignore", crop=False)


def plain(text: str) -> Text:
    """Convert a string to plain `Text` where rich would read markup (panel titles, spinners), truncated if huge."""
    return Text(visible(shortened(text)))


def write(text: object, stream: TextIO | None = None) -> None:
    """Write a sanitised line without any layout.

    Args:
        text: The text.
        stream: Output stream. None for standard output.
    """
    print(visible(str(text)), file=stream or sys.stdout)


def print_json(value: Any) -> None:
    """Print a value as JSON, for machines."""
    write(json_text(as_json_value(value), indent=2))


def print_json_line(value: Any) -> None:
    """Print a value as one line of JSON, at once."""
    write(json_text(as_json_value(value)))
    sys.stdout.flush()


def json_text(value: Any, indent: int | None = None) -> str:
    """Serialise a value as JSON without loss; control and invisible characters are written as `\\uXXXX`."""
    return visible(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent), _escape)


def as_json_value(value: Any) -> Any:
    """Convert a value to JSON-compatible types: times as ISO 8601, bytes as hex digits, NaN and infinities as null."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case BaseModel():
            return as_json_value(value.model_dump(mode="json", by_alias=True))
        case dict():
            return {str(key): as_json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [as_json_value(item) for item in value]
        case _:
            return str(value)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]  # in ASCII; a surrogate pair beyond 16 bits
