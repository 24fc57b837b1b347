"""`render_compare`: chosen runs beside each other as one page, which its script keeps up to date."""

from collections.abc import Mapping
from typing import Any

from starpo.ragen.evidence.report.document import render_document
from starpo.ragen.evidence.view.comparing import MAX_RUNS

_SCRIPTS = (
    "elements.js",
    "recorded.js",
    "terminal.js",
    "lasting.js",
    "glossary.js",
    "legend.js",
    "take.js",
    "chart.js",
    "compare.js",
)
_STYLES = ("colours.css", "document.css", "charts.css", "runs.css", "compare.css")


def render_compare(store: str, comparison: Mapping[str, Any]) -> str:
    """Render the page.

    Args:
        store: URL of the store, without credentials.
        comparison: What it draws (`comparing.compared`), with the runs' `status` and the `version` of these data.
    """
    return render_document(
        "compare.html.j2",
        scripts=_SCRIPTS,
        styles=_STYLES,
        data=dict(comparison),
        is_live=True,
        images=False,
        store=store,
        max_runs=MAX_RUNS,
    )
