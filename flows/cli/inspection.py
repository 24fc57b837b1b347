"""Look at runs."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.common import LOOK, JsonOption, RunArgument, StoreOption, app, open_store


@app.command(rich_help_panel=LOOK)
def runs(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the runs of a store, newest first."""
    from starpo.flows.console import listing

    opened = open_store(store)
    if store is not None:  # the configured one comes into being with its first run
        opened.expect()
    listing.print_runs(opened, as_json)


@app.command(rich_help_panel=LOOK)
def show(
    run: RunArgument,
    iteration: Annotated[int | None, typer.Option(help="One iteration: its stages, metrics and groups.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="One trajectory of that iteration, turn by turn.")] = None,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="With --trajectory: what the model was told, by role.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run, one of its iterations, or one of its trajectories."""
    from starpo.flows.console import listing

    opened = open_store(store)
    if trajectory is not None:
        from starpo.flows.console.trajectory import print_trajectory

        print_trajectory(opened, run, iteration or 0, trajectory, should_show_prompts=prompts, as_json=as_json)
    elif iteration is not None:
        listing.print_iteration(opened, run, iteration, as_json)
    else:
        listing.print_run(opened, run, as_json)


@app.command(rich_help_panel=LOOK)
def report(
    run: RunArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: var/reports/RUN.html")] = None,
    embed: Annotated[
        list[int] | None,
        typer.Option(
            "--embed", metavar="ITERATION", help="Embed its trajectories, whatever the size; may be repeated."
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write a run's report: one self-contained HTML page."""
    from starpo.flows.console.terminal import write
    from starpo.flows.console.train import write_report

    write(write_report(open_store(store), run, output, embed or ()))


@app.command(rich_help_panel=LOOK)
def compare(
    runs: Annotated[list[str], typer.Argument(help="Names of runs; `ragen runs` lists them.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A page (.html), or a picture of the success curves alone (.svg).")
    ] = Path("comparison.html"),
    title: Annotated[str | None, typer.Option(help="Its heading.")] = None,
    store: StoreOption = None,
) -> None:
    """Compare runs: curves, settings that differ, last and peak success, shared stages; one self-contained page."""
    from starpo.flows.console.terminal import write
    from starpo.flows.console.train import write_comparison

    write(write_comparison(open_store(store), runs, output, title))
