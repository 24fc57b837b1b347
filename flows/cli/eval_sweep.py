"""`starpo eval-sweep`: define a sweep, plan it or run its deployment, follow it, show the result."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.listing import print_rows
from starpo.flows.console.studies import print_result, run_study
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.sweep_plan import SweepPlan, plan_sweep
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.ragen.studies.studies import Sweeps
from starpo.ragen.studies.sweep import Sweep


def eval_sweep(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs whose checkpoints are evaluated.")] = None,
    iterations: Annotated[
        str | None, typer.Option(help="last, all, ends, every:10, or numbers of checkpoints: 10,20. Default: last.")
    ] = None,
    environments: Annotated[
        str | None,
        typer.Option(help="Panels of the runs or names of `starpo envs`, comma-separated. Default: the runs' panels."),
    ] = None,
    temperatures: Annotated[str | None, typer.Option(help="Comma-separated. Default: the runs' own.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Comma-separated. Default: 0, as in training.")] = None,
    prompts: Annotated[int | None, typer.Option(help="Initial states per panel. Default: the runs' own.")] = None,
    samples: Annotated[int | None, typer.Option(help="Episodes per prompt and seed. Default: the runs' own.")] = None,
    matrix: Annotated[
        bool,
        typer.Option(
            "--matrix", help="Generalisation: the first and the last checkpoint of every run on the panels of all runs."
        ),
    ] = False,
    name: Annotated[str | None, typer.Option("--as", help="Name of the result.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the stored and missing cells.")] = False,
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="NAME", help="Only show a stored result."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the stored results.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Cells at a time; they share the machine.")] = 1,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate checkpoints on panels, at several temperatures and seeds; stored cells are not played again."""
    opened = open_store(store)
    studies = Sweeps(opened.url)
    if list_:
        print_rows([{"sweep": known} for known in studies.names()], as_json, "results", "no result")
        return
    if result is not None:
        print_result(studies, result, as_json)
        return
    if not runs:
        raise typer.BadParameter("name a run (`starpo runs` lists them)")
    given = {
        "runs": runs, "iterations": "ends" if matrix and iterations is None else iterations,
        "is_matrix": matrix or None,
        "environments": environments, "temperatures": temperatures, "seeds": seeds,
        "num_prompts": prompts, "samples_per_prompt": samples,
    }  # fmt: skip
    sweep = asked_sweep(name, {key: value for key, value in given.items() if value is not None})
    plan = plan_sweep(opened, sweep)
    if dry_run:
        _print_plan(plan, opened, as_json)
        return
    parameters = {
        "sweep": sweep.model_dump(mode="json", exclude_defaults=True),
        "store": store,
        "concurrency": concurrency if concurrency > 1 else None,
    }

    def look() -> tuple[Mapping[str, str], str]:
        stored = {planned.label for planned in plan.cells if planned.is_stored}
        return dict.fromkeys([*stored, *studies.measured(sweep.name)], "is measured"), f"sweep {sweep.name}"

    run_study(studies, plan, sweep, "eval-sweep/custom", parameters, look, as_json)


def asked_sweep(name: str | None, given: Mapping[str, Any]) -> Sweep:
    """Build the sweep that a command line describes.

    Args:
        name: Name of the result. None for a name derived from the runs and the settings.
        given: Settings as typed, with comma-separated lists.

    Raises:
        ConfigError: If the sweep is invalid.
    """
    values = {setting: _parsed(setting, value) for setting, value in given.items()}
    return Sweep.make({"name": name or _default_name(values), **values}, "starpo eval-sweep")


def _print_plan(plan: SweepPlan, store: Store, as_json: bool) -> None:
    """Print the plan of a sweep: how many of its cells are stored, and how many are missing."""
    checkpoints: dict[tuple[str, str], list[int]] = {}
    for planned in plan.cells:
        cell = planned.cell
        checkpoints.setdefault((cell.run, cell.environment), []).append(cell.iteration)
    missing = Counter((planned.cell.run, planned.cell.environment) for planned in plan.missing)
    rows = [
        {
            "run": run,
            "environment": environment,
            "checkpoints": len(set(iterations)),
            "cells": len(iterations),
            "stored": len(iterations) - missing[run, environment],
            "missing": missing[run, environment],
        }
        for (run, environment), iterations in checkpoints.items()
    ]
    dropped, num_stored = plan.dropped(store), len(plan.cells) - len(plan.missing)
    if as_json:
        print_json(
            {
                "name": plan.name, "store": store.url, "cells": len(plan.cells), "stored": num_stored,
                "missing": len(plan.missing), "by_panel": rows, "to_derive": dropped, "waiting": plan.waiting,
                "missing_cells": [planned.label for planned in plan.missing],
            }
        )  # fmt: skip
        return
    print_rows(rows, False, f"sweep {plan.name}", "no cells: none of the requested checkpoints exists yet")
    console = Console()
    say(console, f"{len(plan.cells)} cells: {num_stored} are stored, {len(plan.missing)} missing")
    if dropped:
        say(console, f"{len(dropped)} of their checkpoints were not kept and are derived first, then dropped again")
    for run, what in plan.waiting.items():
        say(console, f"run {run} does not have {what} yet")


def _default_name(values: Mapping[str, Any]) -> str:
    """Return the run's name, or `sweep` for several, and eight digits of the settings."""
    runs = values.get("runs", [])
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
    return f"{runs[0][:110] if len(runs) == 1 else 'sweep'}-{digest}"


def _parsed(setting: str, value: Any) -> Any:
    """Parse a comma-separated list; values such as `last`, `all` and `every:10` are returned unchanged."""
    if not isinstance(value, str) or (
        setting == "iterations" and not value.replace(",", "").replace(" ", "").isdigit()
    ):
        return value
    kinds: dict[str, Callable[[str], Any]] = {"environments": str.strip, "temperatures": float}
    kind = kinds.get(setting, int)
    try:
        return [kind(part) for part in value.split(",")]
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"--{setting} {value}: expected comma-separated {what}, such as 0,1") from error
