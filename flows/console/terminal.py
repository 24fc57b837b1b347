"""The one door to a terminal: whatever is printed is data, in which nothing is markup and nothing steers the terminal.

Commands print through `Console`, `write` and `print_json` alone (a test holds them to it), so none of them escapes
anything itself. Looks are given by `style=` and by `Text` of our own.
"""

import json
import math
import sys
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TextIO

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.progress import TextColumn
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from starpo.ragen.core.visible import shortened, visible

MAX_CELL = 1_000
"""Characters of a cell: rich takes minutes to fold more in narrow columns."""


class Console(RichConsole):
    """Rich's console, to which text is text and no more, and from which nothing raw leaves."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """Text as a line or a cell has it; see `plain`."""
        return super().render_str(visible(shortened(text)), **{**options, "markup": False, "emoji": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is written, piece by piece; only pieces of rich's own, such as moves of the cursor, are left alone."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def status(self, status: RenderableType, **options: Any) -> Status:
        """A line with a spinner; its `update` takes `plain` text."""
        return super().status(plain(status) if isinstance(status, str) else status, **options)


def description_column() -> TextColumn:
    """What a bar of progress is about; rich's own column would take it for markup."""
    return TextColumn("{task.description}", markup=False)


def say(console: RichConsole, text: str) -> None:
    """A line as it is: nothing in it is markup, and it is not broken."""
    console.print(plain(text), soft_wrap=True)


def plain(text: str) -> Text:
    """Text as it is, where rich would read markup otherwise (titles of panels, spinners); what is endless is cut."""
    return Text(visible(shortened(text)))


def write(text: object, stream: TextIO | None = None) -> None:
    """A line outside of any layout.

    Args:
        text: What to write.
        stream: Where to. None: the standard output.
    """
    print(visible(str(text)), file=stream or sys.stdout)


def print_json(value: Any) -> None:
    """A value as JSON, for machines."""
    write(json_text(as_json_value(value), indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that says all; what a terminal would obey, and what nobody sees, is written as `\\uXXXX`."""
    return visible(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent), _escape)


def as_json_value(value: Any) -> Any:
    """A value as JSON has it: times as ISO 8601, bytes as hexadecimal digits, NaN and infinities as null."""
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
        case dict():
            return {str(key): as_json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [as_json_value(item) for item in value]
        case _:
            return str(value)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]  # in ASCII: beyond 16 bits a surrogate pair
