"""What every listing in a terminal has in common: tables of one look, and text that cannot steer the terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text


def new_table(title: str = "", *, gap: int = 2) -> Table:
    """An empty table, as narrow as may be, so that words stay whole in 80 columns.

    Args:
        title: Above it.
        gap: Spaces between columns, 1 at least.
    """
    return Table(
        title=plain(title) if title else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),
    )


def say(console: Console, text: str) -> None:
    """A line as it is: nothing in it is markup, and it is not broken."""
    console.print(plain(text), soft_wrap=True)


def plain(text: str) -> Text:
    """Text as it is: nothing in it is markup, and nothing in it steers the terminal."""
    return Text(visible(text))


def visible(text: str) -> str:
    """Text without characters that could steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
