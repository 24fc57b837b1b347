"""Text in a terminal: as it is, without what could steer the terminal."""

from rich.console import Console
from rich.text import Text


def say(console: Console, text: str) -> None:
    """A line as it is: nothing in it is markup, and it is not broken."""
    console.print(plain(text), soft_wrap=True)


def plain(text: str) -> Text:
    """Text as it is: nothing in it is markup, and nothing in it steers the terminal."""
    return Text(visible(text))


def visible(text: str) -> str:
    """Text without characters that could steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
