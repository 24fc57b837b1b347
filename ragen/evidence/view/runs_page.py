"""`render_runs`: all runs of a store as one page, which its script keeps up to date."""

from collections.abc import Mapping
from typing import Any

from starpo.ragen.evidence.report.document import render_document

_SCRIPTS = ("elements.js", "lasting.js", "runs.js")
_STYLES = ("colours.css", "document.css", "charts.css", "runs.css")


def render_runs(store: str, newest: Mapping[str, Any]) -> str:
    """Render the page.

    Args:
        store: URL of the store, without credentials.
        newest: Facts of its newest runs (`RunList.newest`); the script asks for the others.
    """
    return render_document(
        "runs.html.j2", scripts=_SCRIPTS, styles=_STYLES, data=dict(newest), is_live=True, images=False, store=store
    )
