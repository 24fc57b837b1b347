"""Ablations: which setting made the difference."""

from typing import Annotated

import typer

from starpo.flows.cli.common import STUDY, JsonOption, StoreOption, app, open_store


@app.command(rich_help_panel=STUDY)
def ablate(
    grid: Annotated[str | None, typer.Argument(help="A grid of `ragen ablate --list`, or a TOML file.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many stages are stored and new.")] = False,
    result: Annotated[bool, typer.Option("--result", help="Only show the stored result.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the grids.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Runs at a time; they share the cores.")] = 1,
    allow_few_seeds: Annotated[bool, typer.Option("--allow-few-seeds", help="Accept fewer than three seeds.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a grid of settings over matched seeds, and compare every cell with the base."""
    from starpo.flows.console import ablate as ablations

    if list_:
        ablations.print_grids(open_store(store), as_json)
        return
    if grid is None:
        raise typer.BadParameter("name a grid, or a TOML file; `ragen ablate --list` lists the grids")
    if result:
        ablations.print_asked_result(open_store(store), grid, as_json)
    elif dry_run:
        ablations.print_plan(grid, open_store(store), allow_few_seeds, as_json)
    else:
        ablations.ablate(grid, store=store, concurrency=concurrency, allow_few_seeds=allow_few_seeds, as_json=as_json)
