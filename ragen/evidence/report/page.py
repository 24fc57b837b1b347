"""`render_report`: a run as one HTML page.

ReportData -> template values, the script's data -> document
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from markupsafe import Markup

from starpo.ragen.evidence.diagnostics.plane import draw_plane, path
from starpo.ragen.evidence.report import words
from starpo.ragen.evidence.report.audited import Audited
from starpo.ragen.evidence.report.curves import CurvePanel, main_panels, other_panels
from starpo.ragen.evidence.report.data import ReportData
from starpo.ragen.evidence.report.decisions import Decision
from starpo.ragen.evidence.report.document import render_document
from starpo.ragen.evidence.report.embedding import Embedded
from starpo.ragen.evidence.unreplayable import unreplayable
from starpo.schemas.manifest import Manifest

_SCRIPTS = (
    "elements.js",
    "recorded.js",
    "address.js",
    "chart.js",
    "timeline.js",
    "decisions.js",
    "boards.js",
    "batches.js",
    "tokens.js",
    "player.js",
    "images.js",
    "prompt.js",
    "turns.js",
    "iteration.js",
    "viewer.js",
    "find.js",
    "page.js",
)
_STYLES = ("colours.css", "document.css", "charts.css", "report.css", "trajectory.css", "boards.css")
_MAX_SHOWN_MISSING = 50


def render_report(data: ReportData, audits: Audited | None = None) -> str:
    """Render the page.

    Args:
        data: Data of the run.
        audits: Findings of its audits; None to omit them.

    Returns:
        HTML. Its size is about four thirds of the embedded trajectories' plus 100 bytes per metric and point, 100 per
        filter decision and 200 per stored artifact.
    """
    embedded = [*data.rollouts, *data.evaluations]
    points = path(data.series)
    return render_document(
        "page.html.j2",
        scripts=_SCRIPTS,
        styles=_STYLES,
        data=_page_data(data),
        images=data.images,
        run=data.run,
        state=data.state,
        verdict=data.verdict,
        audits=audits,
        verdict_words=words.verdict_words(data.verdict),
        regime=points[-1].words if points else "",
        plane=Markup(draw_plane(data.run.name, points)) if points else "",
        facts=words.facts(data),
        headline=words.headline(data.series, data.run.environment, data.updates, data.change),
        goes_wrong=words.goes_wrong(data.failures),
        failures=data.failures,
        settings=words.settings_as_text(data.run.stated),
        embedded_words=words.embedded_words(data),
        unreplayable=unreplayable(data.manifests.values()),
        missing=data.missing[:_MAX_SHOWN_MISSING],
        num_missing=len(data.missing),
        batches=[base64.b64encode(e.packed).decode() for e in embedded],
    )


def _page_data(data: ReportData) -> dict[str, Any]:
    """Build the JSON data for the page's script."""
    reasons = {reason: number for number, reason in enumerate(dict.fromkeys(d.reason for d in data.decisions))}
    last = max((x for series in data.series.values() for x in series), default=0)
    return {
        "run": data.run.name,
        "why_not_drawn": words.why_not_drawn(data.run),
        "environment": data.run.environment,
        "observation": data.run.config.get("agent", {}).get("observation", "text"),
        "images": data.images,
        "panels": [_packed_panel(panel) for panel in main_panels(data.series, words.strange_panels(data.run))],
        "other_panels": [_packed_panel(panel) for panel in other_panels(data.series)],
        "metrics": {name: list(series.items()) for name, series in sorted(data.series.items())},
        "signals": [asdict(signal) for signal in data.verdict.signals],
        "last_iteration": max([last, *(place.iteration for place in data.manifests)]),
        "decisions": [_packed_decision(decision, reasons) for decision in data.decisions],
        "reasons": list(reasons),
        **_artifacts(data),
        "batches": [_packed_batch(e, data.updates) for e in (*data.rollouts, *data.evaluations)],
    }


def _packed_panel(panel: CurvePanel) -> dict[str, Any]:
    """Return the fields of a panel and its lines, without the copy of every point that `asdict` would make."""
    return {**vars(panel), "lines": [vars(line) for line in panel.lines]}


def _packed_decision(decision: Decision, reasons: Mapping[str, int]) -> list[Any]:
    return [
        decision.iteration,
        decision.group_id,
        decision.rank,
        round(decision.score, 4),
        round(decision.return_mean, 3),
        round(decision.success_rate, 3),
        int(decision.is_kept),
        reasons[decision.reason],
    ]


def _packed_batch(embedded: Embedded, updates: Mapping[int, int]) -> dict[str, Any]:
    return {
        "iteration": embedded.iteration,
        "updates": updates.get(embedded.iteration, 0),
        "cell": embedded.cell,
        "shown": embedded.num_trajectories,
        "all": embedded.num_all,
    }


def _artifacts(data: ReportData) -> dict[str, Any]:
    """Build one row per artifact; equal provenance is stored only once."""
    origins: dict[str, int] = {}
    rows = []
    for place, manifest in data.manifests.items():
        origin = json.dumps(_origin(manifest), ensure_ascii=False)
        rows.append(
            [
                place.iteration,
                place.stage,
                place.kind,
                place.key,
                manifest.num_rows,
                sum(entry.size_bytes for entry in manifest.files),
                manifest.provenance.get("seconds"),
                manifest.stage.version,
                int(manifest.is_deterministic),
                str(manifest.provenance.get("written_at", "")),
                manifest.inputs,
                origins.setdefault(origin, len(origins)),
            ]
        )
    return {"artifacts": rows, "origins": [json.loads(origin) for origin in origins]}


def _origin(manifest: Manifest) -> dict[str, str]:
    """Describe code, versions and machine in words."""
    provenance = manifest.provenance

    def listed(name: str) -> str:
        facts = provenance.get(name)
        return (
            ", ".join(f"{k} {v}" for k, v in facts.items() if v is not None)
            if isinstance(facts, dict)
            else str(facts or "unknown")
        )

    return {
        "code": str(provenance.get("code") or "unknown"),
        "versions": listed("versions"),
        "hardware": listed("hardware"),
        "threads": listed("threads"),
    }
