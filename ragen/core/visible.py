"""Text of others as people may see it: nothing in it is unseen, reorders what is around it, or steers a terminal.

Inside, text is data and stays as it is. It is made safe once, where it leaves: in a terminal
(`flows.console.terminal`), in logs (`flows.logs`), on Prefect's pages (`flows.markdown`), on pages and in pictures of
our own (`ragen.core.templates`, `ragen.core.pictures`), and as a value that an error quotes (`quoted`).
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Any

from starpo.ragen.core.redaction import without_secrets

MAX_VALUE = 200
"""Characters of a value that a message quotes."""
MAX_TEXT = 20_000
"""Characters of a text that a terminal shows in one piece."""

_PICTURE = "[\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]\ufe0f?[\U0001f3fb-\U0001f3ff]?"
_JOINED_PICTURES = re.compile(f"({_PICTURE}(?:\u200d{_PICTURE})+)")
"""Emoji of several parts, such as a family: the one place where a joiner, which nobody sees, means something."""


def visible(text: str, replaced: Callable[[str], str] = lambda _: "\ufffd") -> str:
    """Text with every character replaced that is unseen or steers what shows it.

    Those are controls (C0 and C1, but for line feed and tab), marks of direction, joiners and other formats of no
    width, separators of lines and paragraphs, halves of surrogate pairs, and what Unicode has not assigned.

    Args:
        text: Any.
        replaced: What to put in the place of such a character.
    """
    if text.isprintable():
        return text
    parts = _JOINED_PICTURES.split(text)  # every second part is a picture
    return "".join(
        part if number % 2 else "".join(c if _is_seen(c) else replaced(c) for c in part)
        for number, part in enumerate(parts)
    )


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """Text of at most about `limit` characters: of a longer one the beginning and the end, and how long it is."""
    if len(text) <= limit:
        return text
    end = limit // 4
    return f"{text[: limit - end]} ... [{len(text):,} characters in all] ... {text[len(text) - end :]}"


def quoted(value: Any, limit: int = MAX_VALUE) -> str:
    """A value as an error message may hold it: as Python writes it, without secrets, and cut, with its length told."""
    text = repr(value)
    shown = without_secrets(text[: 4 * limit])  # to look for secrets in megabytes would take minutes
    return shown if max(len(text), len(shown)) <= limit else f"{shown[:limit]}... ({len(text):,} characters)"


def _is_seen(character: str) -> bool:
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"
