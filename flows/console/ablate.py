"""What `ragen ablate` does: check a grid, plan it or run its deployment, follow it, show the result."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from starpo.flows.ablation_summary import error_rows, heading, method, other_panels, result_rows
from starpo.flows.console.follow import POLL_S, Outcome
from starpo.flows.console.listing import print_rows
from starpo.flows.console.studies import conclude, counting, print_known, print_remarks, print_stored, result_name
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.console.train import start_deployment
from starpo.flows.console.watching import watching
from starpo.flows.plan import RunPlan
from starpo.flows.presets import grids
from starpo.flows.presets import names as preset_names
from starpo.flows.study import Study, is_finished, resolve
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.store import Store
from starpo.ragen.studies.ablation.grid import load_grid
from starpo.ragen.studies.ablation.summary import AblationResult
from starpo.ragen.studies.records import Ablations
from starpo.ragen.work import Work

_DIFFERENCE = "difference [95%], and by seed"


def ablate(name: str, *, store: str | None, concurrency: int, allow_few_seeds: bool, as_json: bool) -> None:
    """Run a grid on the local server, follow it and print its result.

    Args:
        name: A grid's name, or a TOML file.
        store: The store as the user named it. None: the configured one.
        concurrency: Runs at a time.
        allow_few_seeds: Accept fewer than three seeds.
        as_json: Print JSON alone; progress goes to the error output.

    Raises:
        ConfigError: If something is wrong with the grid.
        StoreError: If the store cannot be written.
        RunFailedError: If a run failed, or the whole ablation; the result of the others is printed all the same.
    """
    opened = Store(store or Runtime.current().store)
    study, records = _study(name, opened, allow_few_seeds), Ablations(opened.url)
    records.begin(study.grid)
    deployment, parameters = _deployment(name, study)
    asked = {
        "store": store,
        "concurrency": None if concurrency == 1 else concurrency,
        "allow_few_seeds": allow_few_seeds or None,
    }
    parameters |= {key: value for key, value in asked.items() if value is not None}
    console = Console(stderr=as_json)
    ended = start_deployment(deployment, parameters, study.grid.name, console)
    with watching(console, f"ablation {study.grid.name}", f"stop it:    ragen cancel {study.grid.name}"):
        outcome = _follow(opened, study, console, ended)
    conclude(outcome, lambda: print_result(opened, study.grid.name, as_json))


def print_plan(name: str, store: Store, allow_few_seeds: bool, as_json: bool) -> None:
    """Say what running a grid would do: how many of its stages are stored, and how many are new.

    Raises:
        ConfigError: If something is wrong with the grid.
    """
    study = _study(name, store, allow_few_seeds)
    plans = study.plans(store)
    rows = _plan_rows(store, study, plans)
    stages = {stage: stage in plan.stored for plan in plans.values() for stage in plan.stages}
    totals = Counter("stored" if is_stored else "new" for is_stored in stages.values())
    new = Counter(stage.name for stage, is_stored in stages.items() if not is_stored)
    unknown: dict[str, list[int]] = {}
    for plan in plans.values():
        for metric, iteration in plan.assumed.items():
            unknown.setdefault(metric, []).append(iteration)
    decided = [
        {"metric": metric, "runs": len(iterations), "first_iteration": min(iterations)}
        for metric, iterations in unknown.items()
    ]
    stops = {run: plan.stops for run, plan in plans.items() if plan.stops is not None}
    if as_json:
        print_json(
            {
                "name": study.grid.name, "store": store.url, "stages": len(stages), "stored": totals["stored"],
                "new": totals["new"], "new_by_stage": dict(new), "runs": rows, "decided_by_data": decided,
                "stops": stops,
            }
        )  # fmt: skip
        return
    print_rows(_by_cell(rows), False, f"{study.grid.name}: {len(rows)} runs", "no run")
    console = Console()
    say(console, f"{len(stages)} different stages: {totals['stored']} are stored, {totals['new']} are new")
    say(console, "shared: new, and made for a run before; the warm start, and all that comes before settings differ")
    if new:
        say(console, f"new: {', '.join(f'{count} {stage}' for stage, count in new.items())}")
    for row in decided:
        say(
            console,
            f"{row['metric']} decides what comes next and is not measured yet (in {row['runs']} runs, from iteration "
            f"{row['first_iteration']} on): the plan takes it that nothing is out of the ordinary",
        )
    for run, reason in stops.items():
        say(console, f"{run} stops early, as its stored data say: {reason}")


def print_asked_result(store: Store, given: str, as_json: bool) -> None:
    """The stored result of an ablation that a user names, as `ablate` does: by a name, or a TOML file.

    Raises:
        ConfigError: If it is neither.
        StoreError: If there is no result of it.
    """
    known = list(dict.fromkeys([*Ablations(store.url).names(), *grids.names()]))
    print_result(store, result_name(given, known, lambda file: load_grid(file).name), as_json)


def print_result(store: Store, name: str, as_json: bool) -> None:
    """The stored result of an ablation.

    Args:
        store: Where it is.
        name: Of the ablation.
        as_json: Print the record.

    Raises:
        StoreError: If there is none.
    """
    records = Ablations(store.url)
    result = records.get(name)
    print_stored(result, records.place(name), as_json, lambda: print_tables(result))


def print_tables(result: AblationResult) -> None:
    """The tables of a result, what their columns are, and what to keep in mind."""
    console = Console()
    for panel in (result.panel, *other_panels(result)):
        rows = []
        for row in result_rows(result, panel):
            difference = f"{row.pop('difference')}\n{row.pop('by seed')}".strip()
            rows.append({**row, _DIFFERENCE: difference})
        title = f"{result.name}: {heading(result, panel)}"
        print_table(console, rows, title=title, numbers=("seeds", "first", "last", "peak", "cross-fitted"))
    failures = [(row["run"], row["error"]) for row in error_rows(result)]
    print_remarks(console, failures, method(result), result.warnings)


def print_grids(store: Store, as_json: bool) -> None:
    """The grids that come with the package, and those of which this store has a result."""
    shipped = {name: grids.description(name) for name in grids.names()}
    print_known("grid", shipped, Ablations(store.url).names(), as_json)


def _deployment(name: str, study: Study) -> tuple[str, dict[str, Any]]:
    """Which deployment runs a grid, and with what; a file of settings is sent along, as it is known only here."""
    if name in grids.names():
        return f"ablation/{name}", {}
    parameters = {"grid": study.grid.model_dump(mode="json", exclude_defaults=True)}
    if study.grid.run is None and study.grid.preset not in preset_names():
        parameters["config"] = study.base.model_dump(mode="json")
    return "ablation/custom", parameters


def _study(name: str, store: Store, allow_few_seeds: bool) -> Study:
    path = grids.grid_file(name)
    shown = path.name if name in grids.names() else name
    return resolve(load_grid(path), store, source=shown, folder=path.parent, allow_few_seeds=allow_few_seeds)


def _plan_rows(store: Store, study: Study, plans: dict[str, RunPlan]) -> list[dict[str, Any]]:
    """A row a run: how many of its stages are stored, new, and new but shared with a run before it."""
    seen: set[Work] = set()
    rows = []
    for run in study.runs:
        plan = plans[run.name]
        first = {stage for stage in plan.new if stage not in seen}
        seen |= first
        counts = {"stored": len(plan.stored), "shared": len(plan.new) - len(first), "new": len(first)}
        finished = is_finished(store, run, plan)
        facts = {"cell": run.cell.label, "seed": run.seed, "run": run.name, "is_finished": finished}
        rows.append({**facts, "stages": len(plan.stages), **counts})
    return rows


def _by_cell(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a plan, added up over the seeds of each cell."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault(row["cell"], []).append(row)
    return [
        {
            "cell": cell,
            "finished": f"{sum(row['is_finished'] for row in runs)}/{len(runs)}",
            **{name: sum(row[name] for row in runs) for name in ("stages", "stored", "shared", "new")},
        }
        for cell, runs in cells.items()
    ]


def _follow(store: Store, study: Study, console: Console, ended: Callable[[], Outcome | None]) -> Outcome:
    """Show how many runs have come to their end, and how far those at work are."""
    started = datetime.now(UTC)
    with counting(console) as bar:
        row = bar.add_task("waiting for the ablation to start", total=len(study.runs))
        said: set[str] = set()
        while True:
            outcome = ended()
            states = {run.name: state for run in study.runs if (state := store.runs.state(run.name)) is not None}
            done = {
                name: state
                for name, state in states.items()
                if state.status == "completed" or (state.status == "failed" and state.heartbeat >= started)
            }
            for name in (name for name in done if name not in said):
                said.add(name)
                say(console, f"{len(said)} of {len(study.runs)}: {name} {done[name].status}")
            at_work = [
                f"{name}: iteration {state.metrics.get('iteration', 0):.0f}/{state.metrics.get('iterations', 0):.0f}"
                for name, state in states.items()
                if state.status == "running" and state.heartbeat >= started
            ]
            bar.update(row, completed=len(done), description=" · ".join(at_work) or "no run at work")
            if outcome:
                return outcome
            time.sleep(POLL_S)
