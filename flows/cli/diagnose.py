"""`starpo diagnose`: whether a run is collapsing, and whether its reasoning depends on the prompt."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from starpo.flows.api.diagnosis import Diagnosis, diagnose_run
from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, open_store
from starpo.flows.console.documents.measuring import DiagnosedRun
from starpo.flows.console.pages import check_output, write_page
from starpo.flows.console.progress import COUNTED, progress_bar
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.diagnostics.fall import fall
from starpo.ragen.evidence.diagnostics.gradients import measured
from starpo.ragen.evidence.diagnostics.plane import Point, draw_plane
from starpo.ragen.learning.control.collapse import SUCCESS, Signal


def diagnose(
    run: RunArgument,
    every: Annotated[
        int | None,
        typer.Option(min=0, help="Probe every n-th iteration; 0: none. Default: as in training, or every tenth."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw how the run's reasoning moved (SVG).")
    ] = None,
    with_gradients: Annotated[
        bool, typer.Option("--gradients", help="Also measure which groups' gradients are signal, and which are noise.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether a run is collapsing, since when and by which signals; probe its reasoning for template collapse.

    Works on finished, interrupted, imported and older runs. What is missing is computed and stored. Exit code 1: some
    of it could not be.
    """
    check_output(output, ".svg")
    opened = open_store(store)
    with progress_bar("probing", COUNTED) as show:
        diagnosis = diagnose_run(opened, run, every, with_gradients, show)
    if as_json:
        print_json(_document(diagnosis))
    else:
        _print(Console(), diagnosis)
    if output is not None:
        if not diagnosis.points:
            raise ConfigError(f"{output} is not drawn: run '{run}' has no probe that found reasoning under two prompts")
        written = write_page(output, draw_plane(run, diagnosis.points))
        say(Console(stderr=True), f"drawn: {written}")
    if diagnosis.num_failed:
        raise typer.Exit(1)


def _print(console: Console, diagnosis: Diagnosis) -> None:
    say(console, f"{diagnosis.run}: {diagnosis.verdict.words}")
    if diagnosis.verdict.signals:
        print_table(console, [_signal_row(signal) for signal in diagnosis.verdict.signals])
    if (fell := fall(diagnosis.series.get(SUCCESS, {}))) is not None:
        say(console, f"training success had halved for good at iteration {fell}, in hindsight")
    if diagnosis.points:
        print_table(console, [_point_row(point) for point in diagnosis.points], title="reasoning of first turns")
        say(
            console,
            "H(Z|X): variety of the reasoning under one prompt; I(X;Z): its dependence on the prompt (nats per token); "
            "standard errors: of I(X;Z), above chance from 2; retrieval above chance: share of reasonings likeliest "
            "under their own prompt; regime: relative to the first probe",
        )
        say(console, f"the last probe, {diagnosis.points[-1].words}")
    else:
        say(console, "reasoning: no probe found reasoning under two different prompts")
    for iteration, buckets in measured(diagnosis.series).items():
        rows = _gradient_rows(buckets)
        print_table(console, rows, title=f"gradients at iteration {iteration}, by the groups' reward std")
        say(console, "norm: of the mean gradient of the bucket's groups; snr: its square over one group's variance")
        if any(row[name] == "" for row in rows for name in row if name.endswith(" snr")):
            say(console, "a blank signal-to-noise ratio (snr): it takes two groups whose gradients differ")
    if diagnosis.num_computed:
        say(console, f"computed and stored for this: {counted(diagnosis.num_computed, 'stage')}")
    for reason, number in diagnosis.not_computed.items():
        say(console, f"not computed ({number}): {reason}")


def _signal_row(signal: Signal) -> dict[str, Any]:
    ended = "holds" if signal.ended is None else signal.ended
    return {"raised": signal.iteration, "ended": ended, "severity": signal.severity, "signal": signal.words}


def _point_row(point: Point) -> dict[str, Any]:
    return {
        "iteration": point.iteration,
        "H(Z|X)": f"{point.diversity:.3f}",
        "I(X;Z)": f"{point.dependence:.3f}",
        "standard errors": f"{point.standard_errors:.1f}",
        "retrieval above chance": f"{point.retrieval:.2f}",
        "regime": point.regime,
    }


def _gradient_rows(buckets: Mapping[int, Mapping[str, float]]) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for bucket in buckets.values() for name in bucket)
    ratios = {name: name.removesuffix("_norm") + "_snr" for name in names if name.endswith("_norm")}
    columns = dict.fromkeys(each for name in names for each in (name, ratios.get(name, name)))
    return [
        {"bucket": number, **{name.replace("_", " "): _short(bucket.get(name)) for name in columns}}
        for number, bucket in buckets.items()
    ]


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _document(diagnosis: Diagnosis) -> DiagnosedRun:
    reasoning = {name: series for name, series in diagnosis.series.items() if name.startswith("reasoning/")}
    return DiagnosedRun(
        run=diagnosis.run,
        status=diagnosis.verdict.status,
        signals=list(diagnosis.verdict.signals),
        halved_at=fall(diagnosis.series.get(SUCCESS, {})),
        probes=diagnosis.points,
        reasoning=reasoning,
        gradients=measured(diagnosis.series),
        num_computed=diagnosis.num_computed,
        num_failed=diagnosis.num_failed,
        not_computed=diagnosis.not_computed,
    )
