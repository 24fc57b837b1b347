"""`starpo compare`: success of runs, their differences and the settings in which they differ; a figure or a table."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.comparing import compared, difference_rows, remarks, success_rows, table_rows
from starpo.flows.console.documents.measuring import ComparedRuns, RunBeside
from starpo.flows.console.listing import print_rows
from starpo.flows.console.pages import check_output, write_page
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.core.tabular import as_csv, as_latex
from starpo.ragen.evidence.report.words import differing_settings, differing_values
from starpo.ragen.studies.figures.comparison import Curve, draw_comparison


def compare(
    runs: Annotated[list[str], typer.Argument(help="Names of runs; `starpo runs` lists them.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The curves as .svg, .pdf or .png; success by run as .csv or .tex."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare runs: first, best and last success on their panels, the difference from the first run, and the settings
    that differ."""
    check_output(output, ".svg", ".pdf", ".png", ".csv", ".tex")
    opened = open_store(store)
    records = [opened.runs.get(name) for name in dict.fromkeys(runs)]
    comparisons = compared(opened, records)
    differing = differing_settings(records)
    if as_json:
        beside = [
            RunBeside(**one.facts, success_best=one.best, difference=one.difference, words=one.words)
            for one in comparisons
        ]
        print_json(ComparedRuns(runs=beside, settings=differing_values(records)))
    else:
        print_rows(success_rows(comparisons), "success by run", "")
        if len(comparisons) > 1:
            print_rows(difference_rows(comparisons), f"last success minus that of {records[0].name}", "")
        for remark in remarks(comparisons):
            say(Console(), remark)
        by_setting = [{"setting": path, **values} for path, values in differing.items()]
        print_rows(by_setting, "settings that differ", "no setting differs")
    if output is None:
        return
    form = output.suffix.lower().removeprefix(".")
    if form in ("csv", "tex"):
        numbers = [one.numbers for one in comparisons]
        path = write_page(output, as_csv(numbers) if form == "csv" else as_latex(table_rows(comparisons)))
        say(Console(stderr=True), f"written: {path}")
        return
    drawn = [
        Curve(
            one.facts["run"],
            [(point["iteration"], point["success"], point["low"], point["high"]) for point in one.curve],
            {path: values[one.facts["run"]] for path, values in differing.items()},
            one.difference,
        )
        for one in comparisons
    ]
    say(Console(stderr=True), f"drawn: {write_page(output, draw_comparison(drawn, 'Success by run', form))}")
