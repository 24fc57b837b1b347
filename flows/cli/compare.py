"""`ragen compare`: success of runs and the settings in which they differ; a plot of their success curves (`.svg`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.listing import evaluation_curve, print_rows, run_facts
from starpo.flows.console.pages import check_output, write_page
from starpo.flows.terminal import Console, print_json, say
from starpo.ragen.evidence.report.comparison import Curve, draw_comparison
from starpo.ragen.evidence.report.words import settings_as_text
from starpo.ragen.store.records.runs import Run

_ABSENT = "absent"
"""Displayed value of a setting that a run does not have."""


def compare(
    runs: Annotated[list[str], typer.Argument(help="Names of runs; `ragen runs` lists them.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Draw the success curves (SVG).")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare runs: first, best and last success on their panels, and the settings that differ."""
    check_output(output, ".svg")
    opened = open_store(store)
    records = [opened.runs.get(name) for name in dict.fromkeys(runs)]
    curves = {record.name: evaluation_curve(opened, record) for record in records}
    facts = [run_facts(opened, record) for record in records]
    best = {name: max((point["success"] for point in curve), default=None) for name, curve in curves.items()}
    differing = differing_settings(records)
    if as_json:
        print_json({"runs": [{**of, "success_best": best[of["run"]]} for of in facts], "settings": differing})
    else:
        print_rows([_row(of, best[of["run"]], curves[of["run"]]) for of in facts], False, "success by run", "")
        rows = [{"setting": path, **values} for path, values in differing.items()]
        print_rows(rows, False, "settings that differ", "no setting differs")
    if output is not None:
        drawn = [
            Curve(
                record.name,
                record.preset or record.flow,
                [(p["iteration"], p["success"], p["low"], p["high"]) for p in curves[record.name]],
            )
            for record in records
        ]
        say(Console(stderr=True), f"drawn: {write_page(output, draw_comparison(drawn, 'Success by run'))}")


def differing_settings(runs: Sequence[Run]) -> dict[str, dict[str, str]]:
    """Return dotted path -> run -> value of every setting that is not the same in all runs."""
    settings = {run.name: settings_as_text(run.stated) for run in runs}
    paths = dict.fromkeys(path for of_run in settings.values() for path in of_run)
    values = {path: {name: of_run.get(path, _ABSENT) for name, of_run in settings.items()} for path in paths}
    return {path: of_path for path, of_path in values.items() if len(set(of_path.values())) > 1}


def _row(facts: Mapping[str, Any], best: float | None, curve: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    def of(point: Mapping[str, float]) -> str:
        return f"{point['success']:.3f} [{point['low']:.3f}, {point['high']:.3f}]"

    return {
        "run": facts["run"],
        "state": facts["state"],
        "updates": facts["updates"],
        "first": of(curve[0]) if curve else "",
        "best": "" if best is None else f"{best:.3f}",
        "last": of(curve[-1]) if curve else "",
    }
