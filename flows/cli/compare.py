"""`ragen compare`: a page that compares runs (`.html`), or a plot of their success curves (`.svg`)."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.options import StoreOption, open_store
from starpo.flows.console.listing import evaluation_curve
from starpo.flows.console.pages import check_output, write_page
from starpo.flows.console.terminal import write
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.report.comparing import gather_runs
from starpo.ragen.evidence.report.comparison import Curve, draw_comparison
from starpo.ragen.evidence.report.comparison_page import render_comparison


def compare(
    runs: Annotated[list[str], typer.Argument(help="Names of runs; `ragen runs` lists them.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A page (.html), or a picture of the success curves (.svg). Default: var/reports/comparison.html.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    store: StoreOption = None,
) -> None:
    """Compare runs: curves, settings that differ, last and peak success, shared stages; one self-contained page."""
    path = output or Path(Runtime.current().state_dir) / "reports" / "comparison.html"
    check_output(path, ".html", ".svg")
    opened, names = open_store(store), list(dict.fromkeys(runs))
    if path.suffix.lower() == ".html":
        if len(names) == 1:
            raise ConfigError(
                f"a comparison is of at least two runs, and only '{names[0]}' was named; `ragen report` writes the "
                "page of one run, and -o NAME.svg draws its success curve"
            )
        page = render_comparison(gather_runs(opened, names), title or "Comparison of runs", opened.url)
        write(write_page(path, page))
        return
    records = [opened.runs.get(run) for run in names]
    curves = [
        Curve(
            record.name,
            record.preset or record.flow,
            [(p["iteration"], p["success"], p["low"], p["high"]) for p in evaluation_curve(opened, record)],
        )
        for record in records
    ]
    write(write_page(path, draw_comparison(curves, title or "Success by run")))
