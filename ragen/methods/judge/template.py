"""Prompts of a judge: a template filled in with facts, among them untrusted text as JSON strings.

A JSON string is one line and ends where its text ends, whatever the text is: the text cannot close it, and so cannot
pose as the judge's own instructions.
"""

import json
import re
from collections.abc import Mapping

PLACEHOLDER = re.compile(r"\{(\w+)\}")
"""Placeholder in a template."""
_UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Separators of lines, and what cannot be sent, that `json.dumps` leaves as they are."""

Facts = Mapping[str, str]
"""Placeholder -> its replacement."""


def as_string(text: str) -> str:
    """Write a text as a JSON string on one line, with all but control characters as they are."""
    return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def filled_in(template: str, facts: Facts) -> str:
    """Fill in a template in one pass, so that braces in the values are not interpreted."""
    return PLACEHOLDER.sub(lambda match: facts[match[1]], template)
