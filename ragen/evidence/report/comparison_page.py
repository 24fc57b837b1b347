"""`render_comparison`: comparison of several runs as one HTML page.

list of ComparedRun -> template values, the script's data -> document
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from starpo.ragen.evidence.report import words
from starpo.ragen.evidence.report.comparing import ABSENT, ComparedRun, Success, caveats, differences, shared
from starpo.ragen.evidence.report.curves import compared_panels
from starpo.ragen.evidence.report.document import render_document

_SCRIPTS = ("elements.js", "chart.js", "success.js", "comparison.js")
_STYLES = ("colours.css", "document.css", "charts.css", "comparison.css")
_MAX_LISTED = 200


def render_comparison(runs: Sequence[ComparedRun], title: str, store_url: str) -> str:
    """Render the page.

    Args:
        runs: At least one.
        title: Heading of the page.
        store_url: URL of the store, without credentials.
    """
    differing, num_same = differences(runs)
    in_common = shared(runs)
    main, other = compared_panels([(run.run.name, run.environment, run.series) for run in runs])
    return render_document(
        "comparison.html.j2",
        scripts=_SCRIPTS,
        styles=_STYLES,
        data={
            "runs": [_packed(run) for run in runs],
            "panels": [asdict(panel) for panel in main],
            "other_panels": [asdict(panel) for panel in other],
            "last_iteration": max((x for run in runs for series in run.series.values() for x in series), default=0),
        },
        title=title,
        store_url=store_url,
        runs=[_row(run) for run in runs],
        caveats=caveats(runs),
        missing=[(run.run.name, part) for run in runs for part in run.missing],
        absent=ABSENT,
        differing=differing,
        num_same=num_same,
        shared_counts=_counts(runs),
        num_shared=len(in_common),
        shared=in_common[:_MAX_LISTED],
    )


def _packed(run: ComparedRun) -> dict[str, Any]:
    successes = run.successes
    return {
        "name": run.run.name,
        "last": asdict(successes[-1]) if successes else None,
        "peak": asdict(_peak(successes)) if successes else None,
    }


def _row(run: ComparedRun) -> dict[str, Any]:
    successes = run.successes
    return {
        "name": run.run.name,
        "state": run.state.status if run.state else "unknown",
        "environment": run.run.stated.get("environment", {}).get("type", words.UNKNOWN),
        "preset": run.run.preset or "none",
        "seed": str(run.run.stated.get("seed", words.UNKNOWN)),
        "updates": len({place.iteration for place in run.artifacts if place.stage == "update"}),
        "planned": words.iterations_asked(run.run),
        "first": _written(successes[0] if successes else None),
        "peak": _written(_peak(successes) if successes else None),
        "last": _written(successes[-1] if successes else None),
        "verdict": run.verdict.status,
        "duration": words.duration(run.seconds),
    }


def _peak(successes: Sequence[Success]) -> Success:
    return max(successes, key=lambda point: point.value)


def _written(point: Success | None) -> tuple[str, str]:
    if point is None:
        return "none", "not evaluated"
    return f"{point.value:.1%}", f"[{point.low:.1%}, {point.high:.1%}] after {point.updates}"


def _counts(runs: Sequence[ComparedRun]) -> list[tuple[str, list[str]]]:
    """Count per stage and run how many of its executions another run also uses, and of how many."""
    keys = [{(place.stage, place.key) for place in run.artifacts} for run in runs]
    stages = sorted({stage for of_run in keys for stage, _ in of_run})
    rows = []
    for stage in stages:
        cells = []
        for number, of_run in enumerate(keys):
            own = {key for s, key in of_run if s == stage}
            others = {key for n, of in enumerate(keys) if n != number for _, key in of}
            cells.append(f"{len(own & others)} of {len(own)}" if own else "none")
        rows.append((stage, cells))
    return rows
