"""A run in a few sentences: its result, its collapse verdict, and key facts.

ReportData -> sentences, (name, value) -> page
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from starpo.ragen.agents.evaluation.comparison import PanelDifference
from starpo.ragen.config.structure import flattened
from starpo.ragen.core.counts import counted
from starpo.ragen.core.registry import FILTERS
from starpo.ragen.evidence.report.data import ReportData, RunData
from starpo.ragen.evidence.report.failures import Failures
from starpo.ragen.learning.control.collapse import RunVerdict
from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.store.records.run import RunRecord

UNKNOWN = "unknown"
"""Value of a fact that a run does not state."""
_ABSENT = "absent"
"""Displayed value of a setting that a run does not have."""


def headline(
    series: Mapping[str, Series], environment: str, updates: Mapping[int, int], change: PanelDifference | None
) -> str:
    """Describe the run's success on the panel of its environment, in a sentence.

    It is said to rise or fall only where the interval of the difference excludes 0.

    Args:
        series: Metrics by name and iteration.
        environment: Name of the panel.
        updates: Updates done before each iteration.
        change: Last evaluation minus the first; None if their episodes cannot be read.
    """
    name = f"evaluation/{environment}/success"
    points = list(series.get(name, {}).items())
    if not points:
        return "No evaluation has been stored yet."
    (first, _), (last, end) = points[0], points[-1]
    if first == last:
        return f"Success {interval(series, name, first)} after {counted(updates.get(first, 0), 'update')}."
    num_updates = updates.get(last, 0) - updates.get(first, 0)
    span = counted(num_updates, "update")
    if num_updates != last - first:
        span += f" ({counted(last - first, 'iteration')})"
    best = max(points, key=lambda point: point[1])
    peak = ""
    if best[1] > end and len(points) > 2:
        peak = (
            f" The highest of its {len(points)} evaluations is {best[1]:.1%}, after "
            f"{counted(updates.get(best[0], 0), 'update')}."
        )
    ends = interval(series, name, first), interval(series, name, last)
    if change is not None and change.is_apart:
        direction = "rose" if change.mean > 0 else "fell"
        return f"Success {direction} from {ends[0]} to {ends[1]} in {span}, by {_points(change)}.{peak}"
    outcome = (
        "whether it changed is not known, as its episodes cannot be read"
        if change is None
        else f"no change that can be told from chance, {_points(change)}"
    )
    return f"Success was {ends[0]}, and is {ends[1]} after {span}: {outcome}.{peak}"


def _points(change: PanelDifference) -> str:
    """Format a difference of success rates, in points, with its interval and what it is over."""
    over = f"paired over {counted(change.num_pairs, 'initial state')}" if change.num_pairs else "not paired"
    mean, low, high = (f"{100 * value:+.1f}" for value in (change.mean, change.low, change.high))
    return f"{mean} points (95% interval {low} to {high}, {over})"


def strange_panels(run: RunRecord) -> str:
    """Say of which panels a tiny policy cannot read the observations, as it never met their symbols; "" of none."""
    config = run.config
    if config.get("policy", {}).get("type") != "tiny":
        return ""
    trained = config["environment"].get("vocabulary")
    variants = config.get("evaluation", {}).get("variants", {})
    strange = [name for name, variant in variants.items() if variant.get("vocabulary", trained) != trained]
    return (
        f"{' and '.join(strange)}: drawn in symbols not trained on, so low success, even 0%, is expected"
        if strange
        else ""
    )


def interval(series: Mapping[str, Series], name: str, iteration: int) -> str:
    """Format a success rate with its 95% interval, if that was measured."""
    value = f"{series[name][iteration]:.1%}"
    low, high = series.get(f"{name}_low", {}), series.get(f"{name}_high", {})
    if iteration in low and iteration in high:
        value += f" (95% interval {low[iteration]:.1%} to {high[iteration]:.1%})"
    return value


def verdict_words(verdict: RunVerdict) -> str:
    """Describe the verdict in a line; its signals are listed separately."""
    holding = [signal for signal in verdict.signals if signal.ended is None]
    if holding:
        number = "a signal holds" if len(holding) == 1 else f"{len(holding)} signals hold"
        return f"{verdict.status}: {number}, since iteration {min(signal.iteration for signal in holding)}."
    past = f"; {len(verdict.signals)} did in the past" if verdict.signals else ""
    return f"{verdict.status}: no signal of a collapse holds{past}."


def goes_wrong(failures: Failures | None) -> str:
    """Say how many trajectories of the last rollout fail; their kinds are listed separately."""
    if failures is None or not failures.num_trajectories:
        return ""
    rollout = f"the last rollout, of iteration {failures.iteration}"
    if not failures.num_failed:
        return f"Every trajectory of {rollout}, succeeds ({failures.num_trajectories:,})."
    counts = f"{failures.num_failed:,} of {failures.num_trajectories:,} trajectories of {rollout}, fail"
    if sum(kind.count for kind in failures.kinds) > failures.num_failed:
        counts += ", some in several ways"
    return f"What goes wrong now: {counts}{':' if failures.kinds else '.'}"


def facts(data: RunData) -> list[tuple[str, str]]:
    """Return names and values of the key facts; those that the run does not state are left out."""
    run, state, config = data.run, data.state, data.run.stated
    rows = [
        ("State", state.status if state else "not recorded"),
        ("Iterations", f"{data.num_iterations} of {iterations_asked(run)}"),
        ("Updates", str(max(data.updates.values(), default=0))),
        ("Environment", config.get("environment", {}).get("type", UNKNOWN)),
        ("Policy", policy(config.get("policy", {}))),
        ("Advantage", str(config.get("update", {}).get("advantage", UNKNOWN))),
        ("Filter", filter_rule(config.get("filter", {}))),
        ("Seed", str(config.get("seed", UNKNOWN))),
        ("Preset", run.preset or "none"),
        ("Started", moment(run.created)),
        *data.cost.named,
        ("Store", data.store_url),
    ]
    if run.flow == "replay":
        start, stop = (run.parameters.get(end, UNKNOWN) for end in ("start", "stop"))
        rows.insert(0, ("Replay of", f"{run.parameters.get('base', UNKNOWN)}, from checkpoint {start} to {stop}"))
    if state is not None:
        rows.insert(-1, ("Last heartbeat", moment(state.heartbeat)))
    return [(name, value) for name, value in rows if value != UNKNOWN]


def iterations_asked(run: RunRecord) -> str:
    """Return the planned number of iterations: of the settings, a replay's range, or an import's files."""
    start, stop = run.parameters.get("start"), run.parameters.get("stop")
    if run.flow == "replay" and isinstance(start, int) and isinstance(stop, int):
        return str(stop - start)
    if run.flow == "import":
        return str(len(run.parameters.get("files", ())))
    return str(run.config.get("iterations", UNKNOWN))


def embedded_words(data: ReportData) -> list[str]:
    """Describe which trajectories are in the page, and where the others are, with counts."""
    return [_rollout_words(data), *_image_words(data), _evaluation_words(data)]


def _rollout_words(data: ReportData) -> str:
    if not data.rollouts:
        return "No rollout has been stored yet."
    collected = set(data.collected)  # trajectories reused by later iterations (Online-k) are counted once
    batches = [e for e in data.rollouts if e.iteration in collected]
    shown = sum(e.num_trajectories for e in batches)
    everything = sum(d.num_trajectories for d in data.decisions if d.iteration in collected)
    if len(batches) == len(collected) and all(e.num_trajectories == e.num_all for e in batches):
        words = f"All {shown:,} training trajectories of the run are in this page."
    else:
        of_all = f" of the run's {everything:,}" if everything >= shown else ""
        words = (
            f"This page holds {shown:,}{of_all} training trajectories, from {len(batches)} of "
            f"{counted(len(collected), 'rollout')}: the first, the last, those at which a signal "
            "was raised, and others evenly spaced between. The rest are "
            f"in the store: `starpo report {data.run.name} --embed N` adds those of iteration N to the page, "
            f"`starpo show {data.run.name} --iteration N --trajectory ID` prints one."
        )
        cut = [e for e in batches if e.num_trajectories < e.num_all]
        if cut:
            words += f" Of iteration {cut[0].iteration} it holds {cut[0].num_trajectories:,} of {cut[0].num_all:,}."
    not_drawn = sum(e.num_not_drawn for e in data.rollouts)
    if not_drawn:
        words += f" {not_drawn:,} have no pictures: {why_not_drawn(data.run)}."
    if not data.has_tokenizer:
        words += (
            " Prompts are left out, and tokens are shown apart from the text: no checkpoint with the tokenizer is in "
            "the store."
        )
    return words


def _image_words(data: ReportData) -> list[str]:
    if not data.num_images:
        return []
    shown = len(data.images)
    words = f"The model saw {counted(data.num_images, 'different image')} in these: "
    if shown == data.num_images:
        return [words + "all are shown."]
    return [words + f"{shown:,} are shown, the others named by their digest; `starpo sql` reads them (images.png)."]


def why_not_drawn(run: RunRecord) -> str:
    """Explain why some trajectories of the run have no pictures."""
    if run.environment == "program":
        return "a program played them"
    if run.flow == "import":
        return "they were played elsewhere"
    return "today's environment does not reproduce them, or cannot be created here"


def _evaluation_words(data: ReportData) -> str:
    stored = [m for place, m in data.manifests.items() if place.kind == "episodes"]
    if not stored:
        return "No evaluation has been stored yet."
    everything = sum(manifest.num_rows or 0 for manifest in stored)
    shown = sum(e.num_trajectories for e in data.evaluations)
    if shown == everything:
        words = f"All {shown:,} episodes of its {len(stored)} evaluations are included."
    else:
        words = f"Of {everything:,} evaluation episodes it holds {shown:,}, "
        words += f"from {len(data.evaluations)} of {len(stored)} evaluations."
    not_drawn = sum(e.num_not_drawn for e in data.evaluations)
    return words + (f" {not_drawn:,} of these have no pictures." if not_drawn else "")


def settings_as_text(settings: Mapping[str, Any]) -> dict[str, str]:
    """Flatten settings to texts by dotted path."""
    return {
        path: "none" if value is None else value if isinstance(value, str) else json.dumps(value)
        for path, value in flattened(settings).items()
    }


def differing_settings(runs: Sequence[RunRecord]) -> dict[str, dict[str, str]]:
    """Return dotted path -> run -> value of every setting that is not the same in all runs."""
    return differing({run.name: settings_as_text(run.stated) for run in runs})


def differing_values(runs: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return dotted path -> run -> JSON value of every setting that is not the same in all runs; a run without the
    setting is left out."""
    settings = {run.name: flattened(run.stated) for run in runs}
    return {
        path: {run: of_run[path] for run, of_run in settings.items() if path in of_run}
        for path in differing_settings(runs)
    }


def differing(by_run: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return name -> run -> value of all that is not the same in all runs."""
    names = dict.fromkeys(name for of_run in by_run.values() for name in of_run)
    values = {name: {run: of_run.get(name, _ABSENT) for run, of_run in by_run.items()} for name in names}
    return {name: of_name for name, of_name in values.items() if len(set(of_name.values())) > 1}


def policy(settings: Mapping[str, Any]) -> str:
    """Describe the trained model."""
    if settings.get("type") == "tiny":
        return f"tiny: {settings['num_layers']} layers of {settings['hidden_size']}"
    return str(settings.get("name_or_path", UNKNOWN))


def filter_rule(settings: Mapping[str, Any]) -> str:
    """Describe the rule of the filter."""
    strategy = str(settings.get("strategy", "unknown"))
    if strategy == "none":
        return "none"
    if not FILTERS.is_built_in(strategy):
        return f"{strategy}, by {settings.get('metric')}"
    share = settings.get("keep_count") if strategy == "top_k" else f"{settings.get('keep', 1.0):.0%}"
    return f"{strategy}, {share} by {settings.get('metric')}"


def moment(time: datetime) -> str:
    """Format a time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC")
