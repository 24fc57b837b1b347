"""A run as an HTML page: `render_report`, with its trajectories in it, and `render_live_page`, which asks for them.

ReportData, or RunData -> template values, the script's data -> document
"""

import base64
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from starpo.ragen.evidence.diagnostics.plane import draw_plane, path
from starpo.ragen.evidence.reading import Missing
from starpo.ragen.evidence.report import words
from starpo.ragen.evidence.report.curves import (
    FEWEST_SMOOTHED,
    WINDOW,
    CurvePanel,
    Line,
    main_panels,
    other_panels,
)
from starpo.ragen.evidence.report.data import ReportData, RunData
from starpo.ragen.evidence.report.decisions import Decision
from starpo.ragen.evidence.report.document import render_document
from starpo.ragen.evidence.report.embedding import Embedded
from starpo.ragen.evidence.report.evaluations import cell_of
from starpo.ragen.evidence.report.levels import level_panels
from starpo.ragen.evidence.unreplayable import unreplayable
from starpo.ragen.learning.metrics.glossary import meanings
from starpo.ragen.learning.metrics.table import Series
from starpo.schemas.manifest import Manifest

if TYPE_CHECKING:  # a live page loads no audits, nor DuckDB
    from starpo.ragen.evidence.report.audited import Audited

_SCRIPTS = (
    "elements.js",
    "seen.js",
    "recorded.js",
    "address.js",
    "glossary.js",
    "legend.js",
    "take.js",
    "chart.js",
    "timeline.js",
    "decisions.js",
    "terminal.js",
    "origin.js",
    "boards.js",
    "batches.js",
    "tokens.js",
    "player.js",
    "images.js",
    "prompt.js",
    "chat.js",
    "turns.js",
    "beside.js",
    "iteration.js",
    "viewer.js",
    "find.js",
    "head.js",
    "page.js",
)
_STYLES = ("colours.css", "document.css", "charts.css", "report.css", "trajectory.css", "boards.css")
_MAX_SHOWN_MISSING = 50


def render_report(data: ReportData, audits: "Audited | None" = None) -> str:
    """Render the page.

    Args:
        data: Data of the run.
        audits: Findings of its audits; None to omit them.

    Returns:
        HTML. Its size is about four thirds of the embedded trajectories' plus 100 bytes per metric and point, 100 per
        filter decision and 200 per stored artifact.
    """
    embedded = [*data.rollouts, *data.evaluations]
    batches = [_packed_batch(e, data.updates) for e in embedded]
    return render_document(
        "page.html.j2",
        scripts=_SCRIPTS,
        styles=_STYLES,
        data={**page_data(data), "images": data.images, "batches": batches, "other_panels": panels_data(data)},
        **_page_values(data, data.missing),
        plane=plane_of(data),
        images=data.images,
        audits=audits,
        goes_wrong=words.goes_wrong(data.failures),
        failures=data.failures,
        embedded_words=words.embedded_words(data),
        batches=[base64.b64encode(e.packed).decode() for e in embedded],
    )


def render_live_page(data: RunData, missing: Sequence[Missing], status: Mapping[str, Any]) -> str:
    """Render the page of a run that its server keeps up to date, and asks for trajectories as they are looked at.

    Args:
        data: What the run has measured up to now.
        missing: Parts that could not be read.
        status: State of the run, and the version of these data, as the page's script asks for them.
    """
    return render_document(
        "page.html.j2",
        scripts=(*_SCRIPTS, "lasting.js", "search.js", "live.js"),
        styles=(*_STYLES, "runs.css"),
        data={**page_data(data), "status": dict(status)},
        **_page_values(data, missing),
        is_live=True,
        images=True,
        plane="",
        audits=None,
        goes_wrong="",
        batches=(),
    )


def _page_values(data: RunData, missing: Sequence[Missing]) -> dict[str, Any]:
    points = path(data.series)
    return {
        "run": data.run,
        "state": data.state,
        "verdict": data.verdict,
        "head": _head(data),
        "regime": points[-1].words if points else "",
        "settings": words.settings_as_text(data.run.stated),
        "unreplayable": unreplayable(data.manifests.values()),
        "missing": missing[:_MAX_SHOWN_MISSING],
        "num_missing": len(missing),
    }


def plane_of(data: RunData) -> Markup:
    """Draw the path of its probes in the plane of reasoning; empty without any."""
    points = path(data.series)
    return Markup(draw_plane(data.run.name, points)) if points else Markup()


def _head(data: RunData) -> dict[str, Any]:
    """What the run has come to, in words; a live page writes it anew."""
    return {
        "headline": words.headline(data.series, data.run.environment, data.updates, data.change),
        "standstill": f"S{data.verdict.standstill[1:]}." if data.verdict.standstill else "",
        "status": data.verdict.status,
        "verdict": words.verdict_words(data.verdict),
        "facts": words.facts(data),
    }


def page_data(data: RunData, since: int = 0) -> dict[str, Any]:
    """Build the JSON data for the page's script; every rollout and evaluation that is stored is a batch.

    Args:
        data: What the run measured.
        since: First iteration of points, decisions, artifacts and batches, and of metrics without which the glossary
            is as it was, and left out; the rest is of all iterations.
    """
    reasons = {reason: number for number, reason in enumerate(dict.fromkeys(d.reason for d in data.decisions))}
    first, last = (max(map(end, data.series.values()), default=0) for end in (_first, _last))
    panels = main_panels(data.series, words.strange_panels(data.run), data.decisions) + level_panels(data.series)
    return {
        "run": data.run.name,
        "store": data.store_url,
        "head": _head(data),
        "why_not_drawn": words.why_not_drawn(data.run),
        "environment": data.run.environment,
        "observation": data.run.config.get("agent", {}).get("observation", "text"),
        "loss_on": data.run.config.get("update", {}).get("loss_on"),
        "images": {},
        "panels": [_packed_panel(panel, since) for panel in panels],
        **({"glossary": meanings(data.series)} if first >= since else {}),
        "metrics": {name: _newest(series.items(), since) for name, series in sorted(data.series.items())},
        "signals": [asdict(signal) for signal in data.verdict.signals],
        "last_iteration": max([last, *(place.iteration for place in data.manifests)]),
        "decisions": [_packed_decision(one, reasons) for one in data.decisions if one.iteration >= since],
        "reasons": list(reasons),
        **_artifacts(data, since),
        "batches": _stored_batches(data, since),
    }


def panels_data(data: RunData) -> list[dict[str, Any]]:
    """Build the JSON data of the panels of all other metrics."""
    drawn = {line.metric for panel in level_panels(data.series) for line in panel.lines}
    others = {name: series for name, series in data.series.items() if name not in drawn}
    return [_packed_panel(panel) for panel in other_panels(others)]


def _first(series: Series) -> int:
    return next(iter(series))


def _last(series: Series) -> int:
    return next(reversed(series))


def _newest(points: Collection[tuple[float, ...]], since: int) -> list[tuple[float, ...]]:
    """Return the points from an iteration on, of points in order."""
    return list(takewhile(lambda point: point[0] >= since, reversed(list(points))))[::-1]


def _packed_panel(panel: CurvePanel, since: int = 0) -> dict[str, Any]:
    """Return the fields of a panel and its lines, without the copy of every point that `asdict` would make."""
    return {**vars(panel), "lines": [_packed_line(line, since) if since else vars(line) for line in panel.lines]}


def _packed_line(line: Line, since: int) -> dict[str, Any]:
    raw = _newest(line.raw, since)
    num_known = len(line.raw) - len(raw)
    changed = num_known - WINDOW if num_known >= FEWEST_SMOOTHED else 0  # before them, smoothed values are as they were
    return {**vars(line), "raw": raw, "smooth": line.smooth[changed:], "band": _newest(line.band, since)}


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


def _stored_batches(data: RunData, since: int) -> list[dict[str, Any]]:
    sizes: Counter[int] = Counter()
    for decision in data.decisions:
        sizes[decision.iteration] += decision.num_trajectories
    rollouts = [(iteration, None, sizes[iteration]) for iteration in data.stored_rollouts if iteration >= since]
    evaluations = [
        (iteration, cell_of(place), (data.manifests[place].num_rows or 0) if place in data.manifests else 0)
        for iteration, places in data.stored_evaluations.items()
        if iteration >= since
        for place in places
    ]
    return [
        {"iteration": at, "updates": data.updates.get(at, 0), "cell": cell, "shown": size, "all": size}
        for at, cell, size in (*rollouts, *evaluations)
    ]


def _artifacts(data: RunData, since: int) -> dict[str, Any]:
    """Build one row per artifact, and their origins; equal provenance is stored only once."""
    origins: dict[str, int] = {}
    rows = []
    for place, manifest in data.manifests.items():
        if place.iteration < since:
            continue
        origin = json.dumps(_origin(manifest), ensure_ascii=False)
        number = origins.setdefault(origin, len(origins))
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
                number,
            ]
        )
    return {"artifacts": rows, "origins": [json.loads(origin) for origin in origins]}


def _origin(manifest: Manifest) -> dict[str, str]:
    """Describe code, that which its settings name included, versions and machine in words."""
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
        "named": ", ".join(f"{role} {identity}" for role, identity in manifest.code.items()),
        "versions": listed("versions"),
        "hardware": listed("hardware"),
        "threads": listed("threads"),
    }
