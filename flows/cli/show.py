"""`starpo show`: a run, its timings, one of its iterations, or one of its trajectories."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, open_store
from starpo.flows.console.curves import curve_lines, success_curves
from starpo.flows.console.documents.runs import IterationDetails, RunDetails, StageTime
from starpo.flows.console.listing import at_a_glance, print_records, print_rows, recorded_stages
from starpo.flows.console.reasons import merged_reasons
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.console.trajectory import print_trajectory
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.cost import cost, manifests_of
from starpo.ragen.evidence.diagnostics.online import by_reuse
from starpo.ragen.evidence.reading import Reader, hashed_metrics, side_by_side
from starpo.ragen.evidence.run_facts import run_facts
from starpo.ragen.evidence.times import times_of
from starpo.ragen.evidence.unreplayable import unreplayable_of
from starpo.ragen.learning.control.collapse import RunVerdict, diagnose
from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import read_attempts, recorded_data
from starpo.ragen.store.records.runs import RunRecord, StageKeys
from starpo.schemas.manifest import Manifest


def show(
    run: RunArgument,
    iteration: Annotated[int | None, typer.Option(help="One iteration: its stages, metrics and groups.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="One trajectory of that iteration, turn by turn.")] = None,
    prompts: Annotated[bool, typer.Option("--prompts", help="With --trajectory: also its prompts, by role.")] = False,
    timings: Annotated[bool, typer.Option("--timings", help="Where the run's time went, by stage.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run, where its time went, one of its iterations, or one of its trajectories."""
    if trajectory is not None and iteration is None:
        raise ConfigError("--trajectory needs --iteration N: trajectory names repeat in every iteration")
    if prompts and trajectory is None:
        raise ConfigError("--prompts needs --trajectory ID, the trajectory to show")
    if timings and iteration is not None:
        raise ConfigError("--timings shows the whole run; leave out --iteration")
    opened = open_store(store)
    if iteration is not None and trajectory is not None:
        print_trajectory(opened, run, iteration, trajectory, should_show_prompts=prompts, as_json=as_json)
    elif iteration is not None:
        print_iteration(opened, run, iteration, as_json)
    elif timings:
        times = [StageTime(**row) for row in times_of(opened, run)]
        print_records(times, as_json, f"{run}: median and total seconds of each stage", "nothing stored yet")
    else:
        print_run(opened, run, as_json)


def print_run(store: Store, run: str, as_json: bool) -> None:
    """Print a run: its main facts, and one row per iteration."""
    record = store.runs.get(run)
    recorded = store.runs.iterations(run)
    manifests = manifests_of(store, record)
    known = {place.key: manifest for place, manifest in manifests.items() if place.kind == "metrics"}
    values = side_by_side(store, lambda stages: _metrics(store, stages, known), recorded.values())
    metrics = dict(zip(recorded, values, strict=True))
    rows = [{"iteration": iteration, **_iteration_facts(record, values)} for iteration, values in metrics.items()]
    verdict = _verdict(metrics)
    spent = cost(Reader(store), record, manifests)
    reuses = by_reuse(recorded, metrics)
    if as_json:
        print_json(
            RunDetails(
                **run_facts(store, record),
                config=record.stated,
                parameters=record.parameters,
                per_iteration=rows,
                by_reuse=reuses,
                verdict=verdict.status,
                cost=spent.facts,
                unreplayable=unreplayable_of(store, recorded.values()),
            )
        )
        return
    print_rows([at_a_glance(run_facts(store, record))], f"{run} in {store.url}", "")
    console = Console()
    for line in curve_lines(
        console.encoding, success_curves(*([row[name] for row in rows] for name in ("panel", "success")))
    ):
        console.print(line)
    print_rows(rows, "iterations", "no iteration yet")
    if len(reuses) > 1:
        title = "updates, by how many earlier ones had used their rollout; before the first step"
        print_rows([_reuse_facts(row) for row in reuses], title, "")
    if verdict.status != "healthy":
        say(Console(), verdict.words)
    for name, value in spent.named:
        say(Console(), f"{name}: {value}")
    for sentence in unreplayable_of(store, recorded.values()):
        say(Console(), sentence)


def print_iteration(store: Store, run: str, iteration: int, as_json: bool) -> None:
    """Print an iteration: its artifacts, its metrics, and the filter's decision on each group."""
    stages = recorded_stages(store, run, iteration)
    artifacts = [
        {"stage": stage, "kind": kind, "key": key, "rows": _num_rows(store, kind, key)}
        for stage, keys in stages.items()
        for kind, key in keys.items()
    ]
    metrics = [{"name": name, "value": value} for name, value in sorted(_metrics(store, stages).items())]
    groups: list[dict[str, Any]] = []
    if "variance_filter" in stages:
        columns = ["group_id", "score", "rank", "kept", "success_rate", "return_mean", "reason"]
        groups = read_attempts(store, "selection", recorded_data(stages), columns).to_pylist()
    levels: list[dict[str, Any]] = []
    if "curriculum" in stages:
        columns = ["level", "share", "base_share", "success", "num_groups", "is_open"]
        levels = store.read_table("curriculum", stages["curriculum"]["curriculum"], columns).to_pylist()
    if as_json:
        print_json(
            IterationDetails(
                run=run, iteration=iteration, artifacts=artifacts, metrics=metrics, groups=groups, levels=levels
            )
        )
        return
    print_rows(artifacts, f"{run}, iteration {iteration}", "nothing stored")
    for sentence in unreplayable_of(store, [stages]):
        say(Console(), sentence)
    print_rows(metrics, "metrics", "no metrics")
    if levels:
        print_rows(levels, "levels of the curriculum that the rollout follows", "")
    ranked = sorted(groups, key=lambda group: group["rank"])
    without_reason = [{name: value for name, value in group.items() if name != "reason"} for group in ranked]
    print_rows(without_reason, "groups", "no filter in this iteration")
    for count, reason in merged_reasons(group["reason"] for group in ranked):
        say(Console(), f"{count} {'group' if count == 1 else 'groups'} {reason}")


def _verdict(metrics: Mapping[int, Mapping[str, float]]) -> RunVerdict:
    series: dict[str, Series] = {}
    for iteration, values in metrics.items():
        for name, value in values.items():
            series.setdefault(name, {})[iteration] = value
    return diagnose(series)


def _iteration_facts(run: RunRecord, metrics: Mapping[str, float]) -> dict[str, float | None]:
    shown = {
        "success": "rollout/success_rate",
        "return": "reward/return_mean",
        "reward_std": "reward/in_group_std",
        "kept": "filter/num_kept",
        "entropy": "rollout/entropy",
        "length": "rollout/response_length_mean",
        "format": "rollout/format_ok",
        "gradient_norm": "update/gradient_norm",
    }
    success = shown["success"]
    shown |= {name.removeprefix("rollout/"): name for name in sorted(metrics) if name.startswith(f"{success}/")}
    shares = [name for name in sorted(metrics) if name.startswith("curriculum/share/")]
    shown |= {name.removeprefix("curriculum/"): name for name in shares}
    shown["panel"] = f"evaluation/{run.environment}/success"
    return {label: metrics.get(name) for label, name in shown.items()}


def _reuse_facts(row: Mapping[str, float]) -> dict[str, float | None]:
    shown = {
        "earlier_uses": "reuse",
        "updates": "num_updates",
        "ESS_of_tokens": "effective_sample_size_tokens",
        "ESS_of_trajectories": "effective_sample_size_trajectories",
        "KL": "kl",
        "beyond_clip": "clip_share",
        "clipped_in_update": "clip_fraction",
    }
    return {label: row.get(name) for label, name in shown.items()}


def _num_rows(store: Store, kind: str, key: str) -> int | None:
    return store.lasting_manifest(kind, key).num_rows


def _metrics(store: Store, stages: StageKeys, known: Mapping[str, Manifest] = MappingProxyType({})) -> dict[str, float]:
    """Read the metrics of an iteration; `known` are manifests that have been read, by key."""
    metrics: dict[str, float] = {}
    for keys in stages.values():
        if key := keys.get("metrics"):
            metrics |= hashed_metrics(store, known.get(key) or store.manifest("metrics", key))
    return metrics
