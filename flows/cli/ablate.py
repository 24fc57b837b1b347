"""`starpo ablate`: check a grid, plan it or run its deployment, follow it, show the result."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from starpo.flows.ablation_plan import AblationPlan, base_file, is_finished, plan_ablation
from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.deployment import written_settings
from starpo.flows.console.documents.studies import PlannedAblation, PlannedRun, Undecided
from starpo.flows.console.follow import FINAL
from starpo.flows.console.listing import print_rows
from starpo.flows.console.studies import Look, print_asked_result, print_known, run_study
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.presets import GRIDS
from starpo.ragen.core.counts import counted
from starpo.ragen.readiness import check_ready
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Store
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.studies import Ablations
from starpo.tasks.loop.plan import RunPlan
from starpo.tasks.loop.rollback import final_run


def ablate(
    grid: Annotated[str | None, typer.Argument(help="A grid of `starpo ablate --list`, or a TOML file.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the stored and the new stages.")] = False,
    result: Annotated[bool, typer.Option("--result", help="Only show the stored result.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the grids.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Runs at a time; they share the cores.")] = 1,
    allow_few_seeds: Annotated[bool, typer.Option("--allow-few-seeds", help="Accept fewer than three seeds.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a grid of settings over matched seeds, and compare every cell with the base."""
    opened = open_store(store)
    studies = Ablations(opened.url)
    if list_:
        print_known(studies, GRIDS, as_json)
        return
    if grid is None:
        raise typer.BadParameter("name a grid, or a TOML file; `starpo ablate --list` lists the grids")
    if result:
        print_asked_result(studies, GRIDS, grid, as_json)
        return
    path = GRIDS.path(grid)
    shown = path.name if grid in GRIDS.names() else grid
    plan = plan_ablation(
        Grid.load(path, GRIDS.folders[0]), opened, source=shown, folder=path.parent, allow_few_seeds=allow_few_seeds
    )  # fmt: skip
    for run in plan.runs[: len(plan.cells)]:  # every cell with the first seed
        check_ready(run.config, f"{shown}: cell '{run.cell.label}'", store=opened)
    if dry_run:
        _print_plan(plan, opened, as_json)
        return
    parameters = {
        "grid": plan.grid.model_dump(mode="json", exclude_defaults=True),
        "store": store,
        "concurrency": None if concurrency == 1 else concurrency,
        "allow_few_seeds": allow_few_seeds or None,
    }
    written = {}
    if (file := base_file(plan.grid, path.parent)) is not None:
        parameters["config"] = plan.base.model_dump(mode="json")
        written["config"] = written_settings(str(file))
    run_study(studies, plan, plan.grid, "ablation/custom", parameters, _looking_at(opened, plan), as_json, written)


def _looking_at(store: Store, plan: AblationPlan) -> Look:
    """Return a function that reports which runs have ended, perhaps as forks, and the progress of the active ones."""
    started = datetime.now(UTC)

    def look() -> tuple[Mapping[str, str], str]:
        names = store.runs.names()
        ends = {run.name: store.runs.state(final_run(run.name, names)) for run in plan.runs}
        states = {name: state for name, state in ends.items() if state is not None}
        done = {
            name: state.status
            for name, state in states.items()
            if state.status == "completed" or (state.status in FINAL and state.heartbeat >= started)
        }
        at_work = [
            f"{name}: iteration {state.metrics.get('iteration', 0):.0f}/{state.metrics.get('iterations', 0):.0f}"
            for name, state in states.items()
            if state.status == "running" and state.heartbeat >= started
        ]
        return done, " · ".join(at_work) or "no active run"

    return look


def _print_plan(plan: AblationPlan, store: Store, as_json: bool) -> None:
    """Print the plan of a grid: how many of its stages are stored, and how many are new."""
    plans = plan.plans(store)
    rows = _plan_rows(store, plan, plans)
    stages = {stage: stage in of_run.stored for of_run in plans.values() for stage in of_run.stages}
    totals = Counter("stored" if is_stored else "new" for is_stored in stages.values())
    new = Counter(stage.name for stage, is_stored in stages.items() if not is_stored)
    unknown: dict[str, list[int]] = {}
    for of_run in plans.values():
        for metric, iteration in of_run.assumed.items():
            unknown.setdefault(metric, []).append(iteration)
    decided = [
        Undecided(metric=metric, runs=len(iterations), first_iteration=min(iterations))
        for metric, iterations in unknown.items()
    ]
    stops = {run: of_run.stops for run, of_run in plans.items() if of_run.stops is not None}
    if as_json:
        print_json(
            PlannedAblation(
                name=plan.name, store=store.url, stages=len(stages), stored=totals["stored"], new=totals["new"],
                new_by_stage=dict(new), runs=rows, decided_by_data=decided, stops=stops,
            )
        )  # fmt: skip
        return
    print_rows(_by_cell(rows), f"{plan.name}: {counted(len(rows), 'run')}", "no run")
    console = Console()
    say(console, f"{len(stages)} different stages: {totals['stored']} are stored, {totals['new']} are new")
    say(
        console,
        "shared: new, but computed once for an earlier run: the warm start, and all stages before settings differ",
    )
    if new:
        say(console, f"new: {', '.join(f'{count} {stage}' for stage, count in new.items())}")
    for row in decided:
        say(
            console,
            f"{row.metric} decides what comes next and is not measured yet (in {row.runs} runs, from iteration "
            f"{row.first_iteration} on): the plan assumes nothing unusual",
        )
    for run, reason in stops.items():
        say(console, f"{run} stops early, according to its stored data: {reason}")


def _plan_rows(store: Store, plan: AblationPlan, plans: dict[str, RunPlan]) -> list[PlannedRun]:
    """Return one row per run: how many of its stages are stored, new, and new but shared with an earlier run."""
    listed: set[Work] = set()
    rows = []
    for run in plan.runs:
        of_run = plans[run.name]
        first = {stage for stage in of_run.new if stage not in listed}
        listed |= first
        rows.append(
            PlannedRun(
                cell=run.cell.label,
                seed=run.seed,
                run=run.name,
                is_finished=is_finished(store, of_run),
                stages=len(of_run.stages),
                stored=len(of_run.stored),
                shared=len(of_run.new) - len(first),
                new=len(first),
            )
        )
    return rows


def _by_cell(rows: list[PlannedRun]) -> list[dict[str, Any]]:
    """Sum the rows of a plan over the seeds of each cell."""
    cells: dict[str, list[PlannedRun]] = {}
    for row in rows:
        cells.setdefault(row.cell, []).append(row)
    return [
        {
            "cell": cell,
            "finished": f"{sum(row.is_finished for row in runs)}/{len(runs)}",
            **{name: sum(getattr(row, name) for row in runs) for name in ("stages", "stored", "shared", "new")},
        }
        for cell, runs in cells.items()
    ]
