"""What `ragen eval-sweep` does: put a sweep together, plan it or run its deployment, follow it, show the result."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from starpo.flows.console.follow import POLL_S, Outcome
from starpo.flows.console.listing import print_rows
from starpo.flows.console.studies import conclude, counting, print_known, print_remarks, print_stored, result_name
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.console.train import start_deployment
from starpo.flows.console.watching import watching
from starpo.flows.eval_sweep_summary import error_rows, heading, leaderboard_rows, method, score_rows
from starpo.flows.presets import sweeps
from starpo.flows.sweep_plan import SweepPlan, plan_sweep
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.ragen.studies.records import Sweeps
from starpo.ragen.studies.sweep.result import SweepResult
from starpo.ragen.studies.sweep.sweep import Sweep, load_sweep, make_sweep

_TEXT_COLUMNS = ("run", "cell", "error")


def asked_sweep(
    grid: str | None,
    name: str | None,
    *,
    runs: list[str] | None,
    iterations: str | None,
    environments: str | None,
    temperatures: str | None,
    seeds: str | None,
    num_prompts: int | None,
    samples_per_prompt: int | None,
) -> Sweep:
    """The sweep that a command line asks for: a sweep of the package or a file, changed by what is given.

    Args:
        grid: What to start from; None: the defaults.
        name: What its result is called. None: the grid's name, or, where anything is given beside it, one made of the
            runs and the settings.
        runs: Runs.
        iterations: `last`, `all`, `every:10` or `10,20`.
        environments: Names with commas.
        temperatures: Numbers with commas.
        seeds: Numbers with commas.
        num_prompts: Prompts of a panel.
        samples_per_prompt: Episodes of each.

    Raises:
        ConfigError: If something is wrong with it.
    """
    given = {
        "runs": runs or None,
        "iterations": _numbers("--iterations", iterations, int) if _is_list(iterations) else iterations,
        "environments": environments and [part.strip() for part in environments.split(",")],
        "temperatures": temperatures and _numbers("--temperatures", temperatures, float),
        "seeds": seeds and _numbers("--seeds", seeds, int),
        "num_prompts": num_prompts,
        "samples_per_prompt": samples_per_prompt,
    }
    given = {key: value for key, value in given.items() if value is not None}
    if grid is not None and not given and name is None:
        return sweeps.sweep(grid)
    base = sweeps.sweep(grid).model_dump(mode="json", exclude={"name"}) if grid is not None else {}
    values = {**base, **given}
    return make_sweep({"name": name or _default_name(values), **values}, "ragen eval-sweep")


def sweep(asked: Sweep, *, store: str | None, concurrency: int, as_json: bool) -> None:
    """Run a sweep on the local server, follow it and print its result.

    Args:
        asked: What is asked for.
        store: The store as the user named it. None: the configured one, of the serving process too.
        concurrency: Cells at a time.
        as_json: Print JSON alone; progress goes to the error output.

    Raises:
        ConfigError: If something is wrong with the sweep.
        StoreError: If the store cannot be written.
        RunFailedError: If a cell failed, or the whole sweep; the result of the others is printed all the same.
    """
    opened = Store(store or Runtime.current().store)
    plan, records = plan_sweep(opened, asked), Sweeps(opened.url)
    records.begin(asked)
    parameters: dict[str, Any] = {"sweep": asked.model_dump(mode="json", exclude_defaults=True)}
    parameters |= {"store": store} if store is not None else {}
    parameters |= {"concurrency": concurrency} if concurrency > 1 else {}
    console = Console(stderr=as_json)
    ended = start_deployment("eval-sweep/custom", parameters, asked.name, console)
    with watching(console, f"sweep {asked.name}", f"stop it:    ragen cancel {asked.name}"):
        outcome = _follow(opened, plan, console, ended)
    conclude(outcome, lambda: print_result(opened, asked.name, as_json))


def print_plan(store: Store, asked: Sweep, as_json: bool) -> None:
    """Say what a sweep would do: how many of its cells are stored, and how many are missing.

    Raises:
        ConfigError: If something is wrong with the sweep.
    """
    plan = plan_sweep(store, asked)
    places = [(planned.cell.run, planned.cell.environment) for planned in plan.cells]
    missing = Counter((planned.cell.run, planned.cell.environment) for planned in plan.missing)
    rows = [
        {
            "run": run,
            "environment": environment,
            "checkpoints": len(
                {p.cell.iteration for p in plan.cells if (p.cell.run, p.cell.environment) == (run, environment)}
            ),
            "cells": number,
            "stored": number - missing[run, environment],
            "missing": missing[run, environment],
        }
        for (run, environment), number in Counter(places).items()
    ]
    dropped = plan.dropped(store)
    if as_json:
        print_json(
            {
                "name": asked.name, "store": store.url, "cells": len(plan.cells),
                "stored": len(plan.cells) - len(plan.missing), "missing": len(plan.missing), "by_panel": rows,
                "to_derive": dropped, "waiting": plan.waiting,
                "missing_cells": [planned.cell.label for planned in plan.missing],
            }
        )  # fmt: skip
        return
    print_rows(rows, False, f"sweep {asked.name}", "no cell: no checkpoint that was asked for is there yet")
    console = Console()
    say(
        console,
        f"{len(plan.cells)} cells: {len(plan.cells) - len(plan.missing)} are stored, {len(plan.missing)} missing",
    )
    if dropped:
        say(console, f"{len(dropped)} of their checkpoints were not kept and are derived first, then dropped again")
    for run, what in plan.waiting.items():
        say(console, f"run {run} does not have {what} yet")


def print_asked_result(store: Store, given: str, as_json: bool) -> None:
    """The stored result of a sweep that a user asks for by its name, or by its TOML file.

    Raises:
        ConfigError: If it is neither.
        StoreError: If there is no result of it.
    """
    known = list(dict.fromkeys([*Sweeps(store.url).names(), *sweeps.names()]))
    print_result(store, result_name(given, known, lambda file: load_sweep(file).name), as_json)


def print_result(store: Store, name: str, as_json: bool) -> None:
    """The stored result of a sweep.

    Args:
        store: Where it is.
        name: Of the sweep.
        as_json: Print the record.

    Raises:
        StoreError: If there is none.
    """
    records = Sweeps(store.url)
    result = records.get(name)
    print_stored(result, records.place(name), as_json, lambda: print_tables(result))


def print_tables(result: SweepResult) -> None:
    """The leaderboard and the scores of a result, what their columns are, and what to keep in mind."""
    console = Console()
    _print_table(console, f"{result.name}: leaderboard; {heading(result)}", leaderboard_rows(result))
    if len(result.environments) > 1:
        _print_table(console, "success by panel, over seeds", score_rows(result))
    failures = [(row["cell"], row["error"]) for row in error_rows(result)]
    print_remarks(console, failures, method(result), result.warnings)


def print_sweeps(store: Store, as_json: bool) -> None:
    """The sweeps that come with the package, and those of which this store has a result."""
    shipped = {name: sweeps.description(name) for name in sweeps.names()}
    print_known("sweep", shipped, Sweeps(store.url).names(), as_json)


def _default_name(values: Mapping[str, Any]) -> str:
    """The run's name, or `sweep` for several, and eight digits of the settings."""
    runs = values.get("runs", [])
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
    return f"{runs[0][:110] if len(runs) == 1 else 'sweep'}-{digest}"


def _is_list(text: str | None) -> bool:
    return text is not None and text.replace(",", "").replace(" ", "").isdigit()


def _numbers(option: str, text: str | None, kind: Callable[[str], Any]) -> list[Any]:
    parts = (text or "").split(",")
    try:
        return [kind(part) for part in parts]
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{option} {text}: expected {what} with commas between them, such as 0,1") from error


def _print_table(console: Console, title: str, rows: list[dict[str, str]]) -> None:
    if not rows:
        say(console, f"{title}: nothing was measured")
        return
    print_table(console, rows, title=title, numbers=[name for name in rows[0] if name not in _TEXT_COLUMNS])


def _follow(store: Store, plan: SweepPlan, console: Console, ended: Callable[[], Outcome | None]) -> Outcome:
    """Show how many cells have been measured, until the flow run ends."""
    records, name = Sweeps(store.url), plan.sweep.name
    said = {planned.cell.label for planned in plan.cells if planned.is_stored}
    if said:
        say(console, f"{len(said)} of {len(plan.cells)} cells are stored")
    with counting(console) as bar:
        row = bar.add_task(f"sweep {name}", total=len(plan.cells))
        while True:
            outcome = ended()
            measured = records.cells(name)
            for label in (label for label in measured if label not in said):
                said.add(label)
                say(console, f"{len(said)} of {len(plan.cells)}: {label}")
            bar.update(row, completed=len(said))
            if outcome:
                return outcome
            time.sleep(POLL_S)
