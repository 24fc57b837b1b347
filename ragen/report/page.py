"""`render_report`: a run as one HTML page that needs no network, no server and no other file.

Everything that came from a model or an environment is untrusted. It is escaped by the template or travels as base64,
and the page's script puts it on the page as text only; a content security policy names the page's own script by its
hash, so that nothing else would run even if it got in.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ragen.diagnostics.collapse import Verdict
from ragen.report.curves import main_panels, other_panels
from ragen.report.data import Decision, ReportData

_SCRIPTS = ("elements.js", "charts.js", "decisions.js", "boards.js", "viewer.js", "page.js")
_STYLE = "page.css"


def render_report(data: ReportData) -> str:
    """Render the page.

    Returns:
        HTML. Its size is about four thirds of the embedded trajectories' plus 100 bytes a metric and 60 a filter
        decision.
    """
    script = "\n".join(_template(name) for name in _SCRIPTS)
    environment = Environment(
        loader=PackageLoader("ragen.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        run=data.run,
        state=data.state,
        verdict=data.verdict,
        verdict_words=_verdict(data.verdict),
        facts=_facts(data),
        headline=_headline(data),
        settings=_flattened(data.run.config),
        stages=_stage_rows(data),
        num_embedded=len(data.trajectories),
        num_iterations=data.num_iterations,
        num_not_drawn=data.num_not_drawn,
        trajectories={i: base64.b64encode(packed).decode() for i, packed in data.trajectories.items()},
        page_data=_page_data(data),
        style=Markup(_template(_STYLE)),  # our own file, not data
        script=Markup(script),  # our own files, not data
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _template(name: str) -> str:
    return files("ragen.report").joinpath("templates", name).read_text(encoding="utf-8")


def _page_data(data: ReportData) -> dict[str, Any]:
    """What the page's script draws, as JSON."""
    reasons = {reason: number for number, reason in enumerate(dict.fromkeys(d.reason for d in data.decisions))}
    return {
        "panels": [asdict(panel) for panel in main_panels(data.series)],
        "other_panels": [asdict(panel) for panel in other_panels(data.series)],
        "signals": [asdict(signal) for signal in data.verdict.signals],
        "last_iteration": max((x for series in data.series.values() for x in series), default=0),
        "decisions": [_packed(decision, reasons) for decision in data.decisions],
        "reasons": list(reasons),
        "stage_seconds": {stage: list(series.items()) for stage, series in data.stage_seconds.items()},
        "embedded": list(data.trajectories),
    }


def _packed(decision: Decision, reasons: Mapping[str, int]) -> list[Any]:
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


def _headline(data: ReportData) -> str:
    """What the run achieved, in a sentence."""
    environment = data.run.config["environment"]["type"]
    name = f"evaluation/{environment}/success"
    points = list(data.series.get(name, {}).items())
    if not points:
        return "No evaluation has been stored yet."
    (first, start), (last, end) = points[0], points[-1]
    if first == last:
        return f"Success {_interval(data, name, first)} before the first update."
    direction = "rose" if end > start else "fell" if end < start else "stayed"
    best = max(points, key=lambda point: point[1])
    peak = f"; it was {best[1]:.1%} at its best, after {best[0]} updates" if best[1] > end else ""
    span = f"from {_interval(data, name, first)} to {_interval(data, name, last)}" if direction != "stayed" else ""
    return f"Success {direction} {span or f'at {_interval(data, name, last)}'} in {last - first} updates{peak}."


def _interval(data: ReportData, name: str, iteration: int) -> str:
    value = f"{data.series[name][iteration]:.1%}"
    low, high = data.series.get(f"{name}_low", {}), data.series.get(f"{name}_high", {})
    if iteration in low and iteration in high:
        value += f" (95% interval {low[iteration]:.1%} to {high[iteration]:.1%})"
    return value


def _verdict(verdict: Verdict) -> str:
    """The verdict in a line; its signals are listed below it."""
    holding = [signal for signal in verdict.signals if signal.ended is None]
    if holding:
        number = "a signal holds" if len(holding) == 1 else f"{len(holding)} signals hold"
        return f"{verdict.status}: {number}, since iteration {min(signal.iteration for signal in holding)}."
    past = f"; {len(verdict.signals)} did in the past" if verdict.signals else ""
    return f"{verdict.status}: no signal of a collapse holds{past}."


def _facts(data: ReportData) -> list[tuple[str, str]]:
    """Name and value of what a reader asks first."""
    run, state, config = data.run, data.state, data.run.config
    seconds = sum(sum(series.values()) for series in data.stage_seconds.values())
    facts = [
        ("State", state.status if state else "unknown"),
        ("Iterations", f"{data.num_iterations} of {config.get('iterations', 'unknown')}"),
        ("Environment", str(config["environment"]["type"])),
        ("Policy", _policy(config.get("policy", {}))),
        ("Advantage", str(config.get("update", {}).get("advantage", "unknown"))),
        ("Filter", _filter(config.get("filter", {}))),
        ("Seed", str(config.get("seed", "unknown"))),
        ("Preset", run.preset or "none"),
        ("Begun", _time(run.created)),
        ("Work in stages", _duration(seconds)),
        ("Store", data.store_url),
    ]
    if state is not None:
        facts.insert(-1, ("Last sign of life", _time(state.heartbeat)))
    return facts


def _policy(policy: Mapping[str, Any]) -> str:
    if policy.get("type") == "tiny":
        return f"tiny: {policy['num_layers']} layers of {policy['hidden_size']}"
    return str(policy.get("name_or_path", "unknown"))


def _filter(filter_: Mapping[str, Any]) -> str:
    strategy = str(filter_.get("strategy", "unknown"))
    if strategy == "none":
        return "none"
    share = filter_.get("keep_count") if strategy == "top_k" else f"{filter_.get('keep', 1.0):.0%}"
    return f"{strategy}, {share} by {filter_.get('metric')}"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _stage_rows(data: ReportData) -> list[tuple[str, int, str, str, str]]:
    """Stage, times, total, mean and share of all, the longest first."""
    totals = {stage: sum(series.values()) for stage, series in data.stage_seconds.items()}
    everything = sum(totals.values()) or 1.0
    return [
        (
            stage,
            len(data.stage_seconds[stage]),
            _duration(total),
            f"{total / len(data.stage_seconds[stage]):.2f} s",
            f"{total / everything:.0%}",
        )
        for stage, total in sorted(totals.items(), key=lambda item: -item[1])
    ]


def _flattened(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by dotted path."""
    rows: list[tuple[str, str]] = []
    for name, value in settings.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            rows += _flattened(value, f"{path}.")
        else:
            rows.append((path, "none" if value is None else str(value)))
    return rows
