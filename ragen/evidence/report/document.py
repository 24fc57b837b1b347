"""Self-contained HTML page from a template, scripts, styles and data; it needs no network or other file.

Everything that came from a model or an environment is untrusted. It is escaped by the template or embedded as JSON or
base64, and the page's script inserts it as text only; a content security policy allows only the page's own script, by
its hash, so that injected code would not run, and forbids every connection, but to the server of a live page.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup, escape

from starpo.ragen.core.templates import template
from starpo.ragen.core.visible import visible

_BETWEEN_BACKTICKS = re.compile("`([^`\n]+)`")


def render_document(
    page: str, *, scripts: Sequence[str], styles: Sequence[str], data: Any, is_live: bool = False, **values: Any
) -> str:
    """Render a page.

    Args:
        page: File in `templates/` that extends `document.html.j2`.
        scripts: Files in `templates/`, concatenated in this order to one script.
        styles: Files in `templates/`.
        data: JSON data for the script.
        is_live: Whether the script may ask the page's server.
        values: Values for the template, which escapes them.
    """
    script = "\n".join(map(_file, scripts))
    return template("starpo.ragen.evidence.report", page).render(
        coded=coded,
        is_live=is_live,
        **values,
        page_data=rounded(data),
        style=Markup("\n".join(map(_file, styles))),  # our own files, not data
        script=Markup(script),  # our own files, not data
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def coded(text: str) -> Markup:
    """Escape a text and format the parts between backticks as code."""
    return Markup(_BETWEEN_BACKTICKS.sub(r"<code>\1</code>", str(escape(visible(text)))))


def rounded(value: Any) -> Any:
    """Round floats in JSON data to six significant digits, more than a screen can show."""
    if isinstance(value, float):  # the most frequent first: a long run has a million numbers
        return float(f"{value:.6g}")
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return value


def _file(name: str) -> str:
    return files("starpo.ragen.evidence.report").joinpath("templates", name).read_text(encoding="utf-8")
