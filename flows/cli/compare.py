"""`ragen compare`: a page that compares runs (`.html`), or a plot of their success curves (`.svg`)."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.options import StoreOption, open_store
from starpo.flows.console.listing import evaluation_curve
from starpo.flows.console.pages import check_output, write_page
from starpo.flows.console.terminal import write
from starpo.ragen.evidence.report.comparing import gather_runs
from starpo.ragen.evidence.report.comparison import Curve, draw_comparison
from starpo.ragen.evidence.report.comparison_page import render_comparison


def compare(
    runs: Annotated[list[str], typer.Argument(help="Names of runs; `ragen runs` lists them.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A page (.html), or a picture of the success curves alone (.svg).")
    ] = Path("comparison.html"),
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    store: StoreOption = None,
) -> None:
    """Compare runs: curves, settings that differ, last and peak success, shared stages; one self-contained page."""
    check_output(output, ".html", ".svg")
    opened = open_store(store)
    if output.suffix.lower() == ".html":
        write(
            write_page(output, render_comparison(gather_runs(opened, runs), title or "Comparison of runs", opened.url))
        )
        return
    records = [opened.runs.get(run) for run in runs]
    curves = [
        Curve(
            record.name,
            record.preset or record.flow,
            [(p["iteration"], p["success"], p["low"], p["high"]) for p in evaluation_curve(opened, record)],
        )
        for record in records
    ]
    write(write_page(output, draw_comparison(curves, title or "Success by run")))
