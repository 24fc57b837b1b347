"""Evaluation sweeps: checkpoints x environments x temperatures x seeds."""

from typing import Annotated

import typer

from starpo.flows.cli.common import STUDY, JsonOption, StoreOption, app, open_store


@app.command(name="eval-sweep", rich_help_panel=STUDY)
def eval_sweep(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs whose checkpoints are evaluated.")] = None,
    grid: Annotated[str | None, typer.Option(help="A sweep of --list, or a TOML file, to start from.")] = None,
    iterations: Annotated[
        str | None, typer.Option(help="last, all, every:10, or numbers of checkpoints: 10,20. Default: last.")
    ] = None,
    environments: Annotated[
        str | None,
        typer.Option(help="Panels of the runs or names of `ragen envs`, with commas. Default: their panels."),
    ] = None,
    temperatures: Annotated[str | None, typer.Option(help="With commas. Default: the runs' own.")] = None,
    seeds: Annotated[str | None, typer.Option(help="With commas. Default: 0, which training plays too.")] = None,
    prompts: Annotated[int | None, typer.Option(help="Initial states of a panel. Default: the runs' own.")] = None,
    samples: Annotated[int | None, typer.Option(help="Episodes a prompt and seed. Default: the runs' own.")] = None,
    name: Annotated[str | None, typer.Option("--as", help="What the result is called.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many cells are stored and missing.")] = False,
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="NAME", help="Only show a stored result; or its TOML file."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the sweeps and the stored results.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Cells at a time; they share the machine.")] = 1,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate checkpoints on panels at temperatures with seeds; only cells that are not stored are played."""
    from starpo.flows.console import eval_sweep as sweeps

    if list_:
        sweeps.print_sweeps(open_store(store), as_json)
        return
    if result is not None:
        sweeps.print_asked_result(open_store(store), result, as_json)
        return
    if not runs and grid is None:
        raise typer.BadParameter("name a run (`ragen runs` lists them), or a sweep with --grid")
    asked = sweeps.asked_sweep(
        grid,
        name,
        runs=runs,
        iterations=iterations,
        environments=environments,
        temperatures=temperatures,
        seeds=seeds,
        num_prompts=prompts,
        samples_per_prompt=samples,
    )
    if dry_run:
        sweeps.print_plan(open_store(store), asked, as_json)
    else:
        sweeps.sweep(asked, store=store, concurrency=concurrency, as_json=as_json)
