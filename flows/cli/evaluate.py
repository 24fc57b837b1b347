"""`starpo evaluate`: who is evaluated on what, in this process or on the server; the plan, and stored results."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from starpo.flows.api.evaluation import Evaluation, carry_out, read_evaluation
from starpo.flows.cli.options import JsonOption, SetOption, StoreOption, open_store, parse_overrides, stoppable
from starpo.flows.console.documents.studies import EvaluationRow, PlannedEvaluation, PlannedPanel
from starpo.flows.console.listing import print_records
from starpo.flows.console.pages import check_output
from starpo.flows.console.studies import RESULT_FORMS, print_result, write_result
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.sweep_plan import SweepPlan, plan_sweep
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.ragen.studies.finish import CellsFailedError
from starpo.ragen.studies.studies import Sweeps


def evaluate(
    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            help="Runs (RUN, RUN:40 for a checkpoint), models (a folder, a GGUF file, package:NAME, OWNER/NAME on the "
            "hub), MODEL@http://SERVER/v1, random, solver."
        ),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            help="A preset or a TOML file, an environment of `starpo envs`, a file of questions, a run's panels (RUN), "
            "the initial states of a rollout (RUN:58); may be repeated. Default: the runs' panels.",
        ),
    ] = None,
    iterations: Annotated[
        str | None,
        typer.Option(help="Of runs: last, all, ends, every:10, or numbers of checkpoints: 10,20. Default: last."),
    ] = None,
    temperatures: Annotated[str | None, typer.Option(help="Comma-separated. Default: as the settings say.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Comma-separated. Default: 0, as in training.")] = None,
    prompts: Annotated[int | None, typer.Option(help="Initial states per panel. Default: as the settings say.")] = None,
    samples: Annotated[int | None, typer.Option(help="Episodes per state and seed. Default: as the settings.")] = None,
    matrix: Annotated[
        bool,
        typer.Option(
            "--matrix", help="Generalisation: the first and the last checkpoint of every run on the panels of all runs."
        ),
    ] = False,
    set_: SetOption = None,
    name: Annotated[str | None, typer.Option("--as", help="Name of the result.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what is stored and what is missing.")] = False,
    result: Annotated[str | None, typer.Option("--result", metavar="NAME", help="Only show a stored result.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the stored results.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The result as .csv or .tex, or drawn as .svg, .pdf or .png."),
    ] = None,
    server: Annotated[
        bool, typer.Option("--server", help="Evaluate on the local Prefect server, as eval-sweep/custom.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="With --server, cells at a time.")] = 1,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate runs, models, servers, and compare them on the same initial states; nothing stored is played again."""
    check_output(output, *RESULT_FORMS)
    opened = open_store(store)
    studies = Sweeps(opened.url)
    if list_:
        print_records([EvaluationRow(evaluation=known) for known in studies.names()], as_json, "results", "no result")
        return
    if result is not None:
        _show(studies, result, as_json, output)
        return
    given = {
        "iterations": "ends" if matrix and iterations is None else _parsed("iterations", iterations),
        "is_matrix": matrix or None,
        "temperatures": _parsed("temperatures", temperatures),
        "seeds": _parsed("seeds", seeds),
        "num_prompts": prompts,
        "samples_per_prompt": samples,
    }
    evaluation = read_evaluation(opened, subjects or [], on or [], parse_overrides(set_), given, name)
    if dry_run:
        _print_plan(opened, evaluation, as_json)
        return
    name, console = evaluation.sweep.name, Console(stderr=True)
    with stoppable(not server):
        try:
            carry_out(opened, evaluation, console, address=store, is_local=not server, concurrency=concurrency)
        except CellsFailedError:
            _show(studies, name, as_json, output)
            raise
    _show(studies, name, as_json, output)


def _show(studies: Sweeps, name: str, as_json: bool, output: Path | None) -> None:
    print_result(studies, name, as_json)
    if output is not None:
        for path in write_result(studies.get(name), output):
            say(Console(stderr=True), f"written: {path}")


def _print_plan(store: Store, evaluation: Evaluation, as_json: bool) -> None:
    """Print how many of the cells are stored and how many are missing, and which subjects begin a run."""
    names = set(store.runs.names())
    begun = {subject: runs for subject, runs in evaluation.sweep.subjects.items() if names.issuperset(runs)}
    to_begin = {subject: runs for subject, runs in evaluation.sweep.subjects.items() if subject not in begun}
    sweep = evaluation.sweep.model_copy(update={"subjects": begun})
    plan = plan_sweep(store, sweep) if sweep.runs or begun else SweepPlan(sweep, [], {})
    checkpoints: dict[tuple[str, str], list[int]] = {}
    for planned in plan.cells:
        cell = planned.cell
        checkpoints.setdefault((cell.run, cell.environment), []).append(cell.iteration)
    missing = Counter((planned.cell.run, planned.cell.environment) for planned in plan.missing)
    rows = [
        PlannedPanel(
            subject=run,
            environment=environment,
            checkpoints=len(set(iterations)),
            cells=len(iterations),
            stored=len(iterations) - missing[run, environment],
            missing=missing[run, environment],
        )
        for (run, environment), iterations in checkpoints.items()
    ]
    dropped, num_stored = plan.dropped(store), len(plan.cells) - len(plan.missing)
    if as_json:
        print_json(
            PlannedEvaluation(
                name=plan.name, store=store.url, cells=len(plan.cells), stored=num_stored, missing=len(plan.missing),
                by_panel=rows, to_derive=dropped, waiting=plan.waiting, to_begin=to_begin,
                missing_cells=[planned.label for planned in plan.missing],
            )
        )  # fmt: skip
        return
    console = Console()
    if plan.cells or not to_begin:
        print_records(rows, False, plan.name, "no cells: none of the requested checkpoints exists yet")
        say(console, f"{len(plan.cells)} cells: {num_stored} are stored, {len(plan.missing)} missing")
    if dropped:
        say(console, f"{len(dropped)} of their checkpoints were not kept and are derived first, then dropped again")
    for subject, runs in to_begin.items():
        say(console, f"{subject}: not evaluated yet; it would be as {', '.join(runs)}")
    for run, what in plan.waiting.items():
        say(console, f"run {run} does not have {what} yet")


def _parsed(setting: str, value: str | None) -> Any:
    """Parse a comma-separated list; values such as `last`, `all` and `every:10` are returned unchanged."""
    if value is None or (setting == "iterations" and not value.replace(",", "").replace(" ", "").isdigit()):
        return value
    kind: Callable[[str], Any] = float if setting == "temperatures" else int
    try:
        return [kind(part) for part in value.split(",")]
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"--{setting} {value}: expected comma-separated {what}, such as 0,1") from error
