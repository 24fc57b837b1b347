"""`starpo export`: a run's trajectories in the formats of other tools."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, open_store
from starpo.flows.console.documents.stores import ExportedRun
from starpo.flows.console.terminal import Console, print_json, say, write
from starpo.ragen.evidence.exchange.choosing import parse_choice, parse_iterations
from starpo.ragen.evidence.exchange.exporting import FORMATS, export_run
from starpo.ragen.evidence.exchange.played import Recorded

_UNITS = {"messages": "conversations", "atif": "documents"}
"""Format -> unit in which the number of written items is given."""


def export(
    run: RunArgument,
    form: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")],
    folder: Annotated[Path, typer.Option("-o", "--output", help="A new folder; an existing one is refused.")],
    iterations: Annotated[str | None, typer.Option(help="Iterations, such as 0-3,7. Default: all.")] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="success, kept, valid, return>=X; may be repeated.")
    ] = None,
    panel: Annotated[
        str | None, typer.Option("--panel", help="The evaluations on this panel in place of rollouts.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a run's trajectories as chat messages or ATIF."""
    choice = parse_choice(where or [])
    opened = open_store(store)
    recorded = Recorded(opened, run, parse_iterations(iterations) if iterations is not None else None, panel)
    with Console(stderr=True).status("exporting"):
        done = export_run(recorded, form, folder, choice)
    if as_json:
        facts = {**vars(done), "iterations": sorted(done.iterations)}
        print_json(ExportedRun(run=run, format=form, folder=str(folder), **facts))
        return
    if done.reused:
        say(Console(), f"{len(done.reused)} iterations share an earlier one's rollout, which was written once")
    write(
        f"{done.num_written} {_UNITS[form]} of {done.num_chosen} trajectories (of {done.num_trajectories}, "
        f"{len(done.iterations)} iterations) in {folder}"
    )
