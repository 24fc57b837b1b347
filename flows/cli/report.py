"""`starpo report`."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, open_store
from starpo.flows.console.documents.training import WrittenReport
from starpo.flows.console.pages import check_output, write_report
from starpo.flows.console.terminal import print_json, write


def report(
    run: RunArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default: var/reports/RUN.html.")
    ] = None,
    embed: Annotated[
        list[int] | None,
        typer.Option(
            "--embed",
            metavar="ITERATION",
            help="Embed this iteration's trajectories, whatever their size; may be repeated.",
        ),
    ] = None,
    audits: Annotated[
        bool,
        typer.Option("--audits/--no-audits", help="Show what `starpo audit` finds; on large runs it takes minutes."),
    ] = True,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report: one self-contained HTML page."""
    check_output(output, ".html")
    file = write_report(open_store(store), run, output, embed or (), should_audit=audits)
    if as_json:
        print_json(WrittenReport(run=run, file=str(file)))
    else:
        write(file)
