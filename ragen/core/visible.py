"""Untrusted text made safe to display: no hidden characters, no bidirectional reordering, no terminal control codes.

Internally, text is data and is kept unchanged. It is made safe once, on output: in a terminal
(`flows.console.terminal`), in logs (`flows.logs`), on Prefect's pages (`flows.markdown`), in our own pages and figures
(`ragen.core.templates`, `ragen.core.pictures`), and as a value quoted in an error message (`quoted`).
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Any

from starpo.ragen.core.redaction import without_secrets

MAX_VALUE = 200
"""Maximum characters of a value quoted in a message."""
MAX_TEXT = 20_000
"""Maximum characters of a text that a terminal shows in one piece."""

_PICTURE = "[\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]\ufe0f?[\U0001f3fb-\U0001f3ff]?"
_JOINED_PICTURES = re.compile(f"({_PICTURE}(?:\u200d{_PICTURE})+)")
"""Emoji of several parts, such as a family: the only place where the invisible joiner is meaningful."""


def visible(text: str, replaced: Callable[[str], str] = lambda _: "\ufffd") -> str:
    """Replace every character that is invisible or controls how the text is displayed.

    These are control characters (C0 and C1, except line feed and tab), directional marks, joiners and other zero-width
    format characters, line and paragraph separators, lone surrogates, and code points that Unicode has not assigned.

    Args:
        text: Any text.
        replaced: Maps such a character to its replacement.
    """
    if text.isprintable():
        return text
    parts = _JOINED_PICTURES.split(text)  # every second part is a joined emoji
    return "".join(
        part if number % 2 else "".join(c if _is_seen(c) else replaced(c) for c in part)
        for number, part in enumerate(parts)
    )


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """Shorten text to about `limit` characters: the beginning and the end of a longer one, with its total length."""
    if len(text) <= limit:
        return text
    end = limit // 4
    return f"{text[: limit - end]} ... [{len(text):,} characters in all] ... {text[len(text) - end :]}"


def quoted(value: Any, limit: int = MAX_VALUE) -> str:
    """Format a value for an error message: its `repr`, without secrets, truncated with its length stated."""
    text = repr(value)
    shown = without_secrets(text)
    return shown if len(shown) <= limit else f"{shown[:limit]}... ({len(text):,} characters)"


def _is_seen(character: str) -> bool:
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"
