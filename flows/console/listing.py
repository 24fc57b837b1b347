"""Tables of runs, iterations, trajectories, presets and environments; the same facts as JSON for machines."""

import json
from typing import Any, Literal

import pyarrow.compute as pc
from rich.console import Console
from rich.panel import Panel

from flows.console.terminal import new_table, plain
from ragen.errors import ArtifactMissingError, ConfigError, RegistryError
from ragen.store import Store
from ragen.store.runs import Run, StageKeys


def print_runs(store: Store, as_json: bool) -> None:
    """All runs, newest first."""
    facts = [_run_facts(store, run) for run in store.runs.list()]
    rows = facts if as_json else [_at_a_glance(row) for row in facts]
    print_rows(rows, as_json, f"runs in {store.url}", f"no runs in {store.url} yet: `ragen train sokoban` makes one")


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
    stages = _stages(store, run, iteration)
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
    print_rows(groups, False, "groups", "no filter in this iteration")


def print_trajectory(store: Store, run: str, iteration: int, trajectory: str, as_json: bool) -> None:
    """A trajectory turn by turn: what was seen, said, done and paid."""
    stages = _stages(store, run, iteration)
    if "rollout" not in stages:
        raise ArtifactMissingError(f"iteration {iteration} of {run} has no rollout; it only evaluates a checkpoint")
    turns = store.read_table("turns", stages["rollout"]["turns"])
    chosen = turns.filter(pc.equal(turns["trajectory_id"], trajectory))
    if not chosen.num_rows:
        ids = sorted(set(turns["trajectory_id"].to_pylist()))
        raise ConfigError(
            f"iteration {iteration} of {run} has no trajectory '{trajectory}'; "
            f"it has {len(ids)}, from {ids[0]} to {ids[-1]}"
        )
    rows = chosen.to_pylist()
    if as_json:
        print_json(rows)
        return
    console = Console()
    for row in rows:
        done = ", ".join(
            f"{action} {reward:+.1f}"
            for action, reward in zip(row["executed_actions"], row["action_rewards"], strict=True)
        )
        body = f"{row['observation']}\n\n{row['response']}\n\nexecuted: {done or 'nothing'}\nstatus: {row['status']}"
        title = f"turn {row['turn']}, {row['actions_left']} actions left"
        console.print(Panel(plain(body), title=title, expand=False))
    console.print("goal reached" if rows[-1]["success"] else "goal not reached")


def print_presets(as_json: bool) -> None:
    """Presets with their first comment."""
    from flows.presets import FOLDER, names, preset

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


def print_environments(check: bool, as_json: bool) -> None:
    """Environment variants; with `check`, what the environment checker finds."""
    from ragen.envs.check import check as check_environment
    from ragen.envs.variants import VARIANTS

    rows = []
    for name, variant in VARIANTS.items():
        row: dict[str, Any] = {"name": name, "type": variant.type, "about": variant.description}
        try:
            settings = variant.settings
        except RegistryError as error:
            row["about"], findings = f"Cannot be loaded; `ragen play {name}` says why.", [str(error)]
        else:
            findings = [str(finding) for finding in check_environment(settings)] if check else []
        rows.append({**row, "findings": findings} if check else row)
    print_rows(rows, as_json, "environments", "")


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
    cell = run.config["environment"]["type"]
    points = []
    for iteration, stages in store.runs.iterations(run.name).items():
        keys = stages.get(f"evaluate:{cell}")
        if keys:
            numbers = store.manifest("episodes", keys["episodes"]).headline
            found = {name: numbers[f"evaluation/{cell}/success{suffix}"] for name, suffix in _BAND.items()}
            points.append({"iteration": iteration, **found})
    return points


_BAND = {"success": "", "low": "_low", "high": "_high"}


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
    shown["panel"] = f"evaluation/{run.config['environment']['type']}/success"
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


def _stages(store: Store, run: str, iteration: int) -> StageKeys:
    store.runs.get(run)
    iterations = store.runs.iterations(run)
    if iteration not in iterations:
        known = f"0 to {max(iterations)}" if iterations else "none"
        raise ConfigError(f"run {run} has no iteration {iteration}; it has {known}")
    return iterations[iteration]


_MANY_COLUMNS = 10
"""So many stand close together, to fit a terminal of 80."""


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
        console.print(nothing)
        return
    table = new_table(title, gap=2 if len(rows[0]) < _MANY_COLUMNS else 1)
    for index, (name, value) in enumerate(rows[0].items()):
        justify: Literal["left", "right"] = "right" if isinstance(value, int | float) else "left"
        table.add_column(name.replace("_", " "), justify=justify, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(plain(_cell(value)) for value in row.values()))
    console.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_json(value: Any) -> None:
    """A value of JSON's types, for machines."""
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201
