"""Untrusted text made safe to display: no hidden characters, no bidirectional reordering, no terminal control codes.

Internally, text is data and is kept unchanged. It is made safe once, on output: in a terminal
(`flows.console.terminal`), in logs (`flows.logs`), in our own pages and figures (`ragen.core.templates`,
`ragen.core.pictures`), and as a value quoted in an error message (`quoted`).
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

_SYMBOLS = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001faff"
)
_PICTURE = f"[{_SYMBOLS}][\ufe0e\ufe0f]?[\U0001f3fb-\U0001f3ff]?"
_EMOJI = re.compile(f"({_PICTURE}(?:\u200d{_PICTURE})*|[0-9#*]\ufe0f\u20e3)")
"""An emoji, of several parts perhaps, such as a family: the only place where `_JOINTS` are meaningful."""
_JOINTS = "\u200d\ufe0e\ufe0f"
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""What Unicode calls default ignorable and Python printable: joiners, fillers and variation selectors."""


def visible(text: str, replaced: Callable[[str], str] = lambda _: "\ufffd") -> str:
    """Replace every character that is invisible or controls how the text is displayed.

    These are control characters (C0 and C1, except line feed and tab), directional marks, joiners, variation selectors,
    fillers and other zero-width characters, line and paragraph separators, lone surrogates, and code points that
    Unicode has not assigned. The joiners and the variation selector of an emoji stay.

    Args:
        text: Any text.
        replaced: Maps such a character to its replacement.
    """
    if text.isprintable() and not _IGNORABLE.search(text):
        return text
    parts = _EMOJI.split(text)  # every second part is an emoji
    return "".join(
        c if _is_seen(c) or (number % 2 and c in _JOINTS) else replaced(c)
        for number, part in enumerate(parts)
        for c in part
    )


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """Shorten text to about `limit` characters: the beginning and the end of a longer one, with its total length.

    Text that would not become shorter is left as it is.
    """
    if len(text) <= limit:
        return text
    end = limit // 4
    parts = f"{text[: limit - end]} ... [{len(text):,} characters in all] ... {text[len(text) - end :]}"
    return min(text, parts, key=len)


def quoted(value: Any, limit: int = MAX_VALUE) -> str:
    """Format a value for an error message: its `repr`, without secrets, truncated with its length stated."""
    text = repr(value)
    shown = without_secrets(text)
    return _escaped(shown) if len(shown) <= limit else f"{_escaped(shown[:limit])}... ({len(text):,} characters)"


def _escaped(text: str) -> str:
    return visible(text, lambda character: character.encode("unicode_escape").decode())


def _is_seen(character: str) -> bool:
    if character.isprintable():
        return not _IGNORABLE.match(character)
    return character in "\n\t" or unicodedata.category(character) == "Zs"
