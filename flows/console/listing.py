"""Tables of runs, iterations, presets and environments; the same facts as JSON for machines."""

from collections.abc import Sequence
from typing import Any

from starpo.flows.console.reasons import merged_reasons
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.core.errors import ArtifactDamagedError, ConfigError, RegistryError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import Run, StageKeys


def print_runs(store: Store, as_json: bool) -> None:
    """All runs, newest first."""
    facts = sorted(
        (_facts_or_fault(store, run) for run in store.runs.names()),
        key=lambda row: (row["created"] or "", row["run"]),
        reverse=True,
    )
    rows = facts if as_json else [_at_a_glance(row) for row in facts]
    print_rows(rows, as_json, f"runs in {store.url}", f"no runs in {store.url} yet: `ragen train sokoban` makes one")
    if not as_json:
        for row in facts:
            if row["fault"]:
                say(Console(), f"{row['run']} is damaged: {row['fault']}")


def print_run(store: Store, run: str, as_json: bool) -> None:
    """A run: its headline, and a line an iteration."""
    record = store.runs.get(run)
    rows = [
        {"iteration": iteration, **_iteration_facts(store, record, stages)}
        for iteration, stages in store.runs.iterations(run).items()
    ]
    if as_json:
        print_json(
            {
                **_run_facts(store, record),
                "config": record.config,
                "parameters": record.parameters,
                "per_iteration": rows,
            }
        )
        return
    print_rows([_at_a_glance(_run_facts(store, record))], False, f"{run} in {store.url}", "")
    print_rows(rows, False, "iterations", "no iteration yet")


def print_iteration(store: Store, run: str, iteration: int, as_json: bool) -> None:
    """An iteration: where its artifacts are, its metrics, and what the filter did with each group."""
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
        groups = store.read_table("selection", stages["variance_filter"]["selection"], columns=columns).to_pylist()
    if as_json:
        print_json({"run": run, "iteration": iteration, "artifacts": artifacts, "metrics": metrics, "groups": groups})
        return
    print_rows(artifacts, False, f"{run}, iteration {iteration}", "nothing stored")
    print_rows(metrics, False, "metrics", "no metrics")
    ranked = sorted(groups, key=lambda group: group["rank"])
    without_reason = [{name: value for name, value in group.items() if name != "reason"} for group in ranked]
    print_rows(without_reason, False, "groups", "no filter in this iteration")
    for count, reason in merged_reasons(group["reason"] for group in ranked):
        say(Console(), f"{count} {'group' if count == 1 else 'groups'} {reason}")


def print_presets(as_json: bool) -> None:
    """Presets with their first comment."""
    from starpo.flows.presets import FOLDER, names, preset

    rows: list[dict[str, Any]] = []
    for name in names():
        about = (FOLDER / f"{name}.toml").read_text().splitlines()[0].removeprefix("# ")
        try:
            config = preset(name)
        except ConfigError:  # such as one whose environment cannot be loaded
            about = f"Cannot be used; `ragen validate {name}` says why."
            rows.append({"preset": name, "environment": "", "policy": "", "iterations": None, "about": about})
            continue
        rows.append({"preset": name, "environment": config.environment.type, "policy": config.policy.type,
                     "iterations": config.iterations, "about": about})  # fmt: skip
    print_rows(rows, as_json, "presets", "")


def print_environments(names: Sequence[str], check: bool, as_json: bool) -> bool:
    """Environment variants, all or those named; with `check`, what the environment checker finds. Is any unsound?"""
    from starpo.ragen.envs.check import check as check_environment
    from starpo.ragen.envs.variants import VARIANTS, variant

    rows = []
    for name, one in {name: variant(name) for name in names or VARIANTS}.items():
        row: dict[str, Any] = {"name": name, "type": one.type, "about": one.description}
        try:
            settings = one.settings
        except RegistryError as error:
            row["about"], findings = f"Cannot be loaded; `ragen play {name}` says why.", [str(error)]
        else:
            findings = [str(finding) for finding in check_environment(settings)] if check else []
        rows.append({**row, "findings": findings} if check else row)
    print_rows(rows, as_json, "environments", "")
    return any(row.get("findings") for row in rows)


def recorded_stages(store: Store, run: str, iteration: int) -> StageKeys:
    """What a run recorded of an iteration.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If it has no such iteration.
    """
    store.runs.get(run)
    iterations = store.runs.iterations(run)
    if iteration not in iterations:
        known = f"0 to {max(iterations)}" if iterations else "none"
        raise ConfigError(f"run {run} has no iteration {iteration}; it has {known}")
    return iterations[iteration]


def success_line(store: Store, run: str) -> str:
    """Success on the panel at the first and the last evaluated checkpoint, with 95% intervals, for people."""
    curve = evaluation_curve(store, store.runs.get(run))
    if not curve:
        return "not evaluated yet"
    (first, *_), (last, *_) = [curve[0]], [curve[-1]]
    return " -> ".join(
        f"{point['success']:.3f} [{point['low']:.3f}, {point['high']:.3f}] after {point['iteration']} updates"
        for point in (first, last)
    )


def evaluation_curve(store: Store, run: Run) -> list[dict[str, float]]:
    """Success with its interval on the training environment's panel, at every evaluated checkpoint."""
    cell = run.environment
    points = []
    for iteration, stages in store.runs.iterations(run.name).items():
        keys = stages.get(f"evaluate:{cell}")
        if keys:
            points.append({"iteration": iteration, **success_of(store, keys.get("episodes", ""), cell)})
    return points


def success_of(store: Store, episodes: str, cell: str) -> dict[str, float]:
    """Success of an evaluation with its interval: success, low, high.

    Raises:
        ArtifactDamagedError: If the headline of its episodes does not say it.
    """
    numbers = store.manifest("episodes", episodes).headline
    found = {name: numbers.get(f"evaluation/{cell}/success{suffix}") for name, suffix in _BAND.items()}
    known = {name: value for name, value in found.items() if isinstance(value, int | float)}
    if len(known) < len(_BAND):
        raise ArtifactDamagedError(
            f"the headline of episodes/{episodes} in {store.url} does not say the success on {cell}; `ragen store "
            "verify` finds what is damaged, and `ragen evaluate` measures a checkpoint again"
        )
    return known


_BAND = {"success": "", "low": "_low", "high": "_high"}


def _facts_or_fault(store: Store, run: str) -> dict[str, Any]:
    """What is known of a run; a damaged one hides none of the others."""
    created = None
    try:
        record = store.runs.get(run)
        created = record.created.isoformat(timespec="seconds")
        return _run_facts(store, record)
    except StoreError as error:
        unknown = dict.fromkeys(("flow", "preset", "iterations", "success_first", "success_last"))
        return {"run": run, "state": "damaged", **unknown, "created": created, "store": store.url, "fault": str(error)}


def _run_facts(store: Store, run: Run) -> dict[str, Any]:
    curve = evaluation_curve(store, run)
    state = store.runs.state(run.name)
    status: str = state.status if state else "unknown"
    if status == "running" and not store.runs.is_running(run.name):
        status = "interrupted"
    return {
        "run": run.name,
        "flow": run.flow,
        "preset": run.preset,
        "state": status,
        "iterations": sum("update" in stages for stages in store.runs.iterations(run.name).values()),
        "success_first": curve[0]["success"] if curve else None,
        "success_last": curve[-1]["success"] if curve else None,
        "created": run.created.isoformat(timespec="seconds"),
        "store": store.url,
        "fault": None,
    }


def _at_a_glance(facts: dict[str, Any]) -> dict[str, Any]:
    """What of a run's facts fits a terminal of 80 columns; the store stands in the title."""
    curve = [facts[name] for name in ("success_first", "success_last") if facts[name] is not None]
    success = " -> ".join(f"{value:.3f}" for value in curve)
    return {**{name: facts[name] for name in ("run", "state", "iterations")}, "success": success}


def _iteration_facts(store: Store, run: Run, stages: StageKeys) -> dict[str, float | None]:
    metrics = _metrics(store, stages)
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
    shown["panel"] = f"evaluation/{run.environment}/success"
    return {label: metrics.get(name) for label, name in shown.items()}


def _num_rows(store: Store, kind: str, key: str) -> int | None:
    return (store.dropped(kind, key) or store.manifest(kind, key)).num_rows


def _metrics(store: Store, stages: StageKeys) -> dict[str, float]:
    found: dict[str, float] = {}
    for keys in stages.values():
        if "metrics" in keys:
            table = store.read_table("metrics", keys["metrics"])
            found |= dict(zip(table["name"].to_pylist(), table["value"].to_pylist(), strict=True))
    return found


def print_rows(rows: list[dict[str, Any]], as_json: bool, title: str, nothing: str) -> None:
    """Rows of the same columns as a table, or as JSON.

    Args:
        rows: What to show.
        as_json: As JSON.
        title: Above the table.
        nothing: What to say where there is no row.
    """
    if as_json:
        print_json(rows)
        return
    console = Console()
    if not rows:
        say(console, nothing)
        return
    print_table(console, rows, title=title)
