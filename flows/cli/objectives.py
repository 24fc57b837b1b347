"""`ragen objectives`: gradients that other objectives would have had on a run's stored rollouts."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption, RunArgument, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.pages import check_output, write_page
from starpo.flows.console.progress import COUNTED, progress_bar
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.objective_forks import MIN_PAIRS, Gain, fork_gains, predictions
from starpo.flows.objectives import ALL, OWN, Lab, compare_objectives
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.diagnostics.objectives import Compared
from starpo.ragen.evidence.report.objectives_page import render_objectives

_LEGEND = (
    "norm: of the mean gradient; signal to noise: its squared norm over the variance of one group's gradient",
    "cosine: with the run's own gradient; nearest: the other objective whose gradient is most similar",
    "share by turn: the part of the gradient that comes from turn 0, 1, ...; positive by turn: the share of its tokens "
    "with a positive advantage",
)


def objectives(
    run: RunArgument,
    iterations: Annotated[
        str | None,
        typer.Option("--iterations", "--iteration", help="Iterations, such as 10,20,30. Default: the last update."),
    ] = None,
    with_: Annotated[
        str, typer.Option("--with", help="Methods (`ragen presets --methods`) or TOML files, comma-separated.")
    ] = ALL,
    set_: SetOption = None,
    forks: Annotated[
        int | None,
        typer.Option(min=1, help="Compare with what stored forks of this checkpoint gained after this many updates."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a page with heat maps of the cosines (.html).")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare objectives on a run's stored rollouts, without a step: where their gradients point, how noisy they are.

    Each replaces the objective of the run's settings. Stored rewards, selections and rollouts stay as they are.
    Results are stored.
    """
    check_output(output, ".html")
    opened = open_store(store)
    methods, wanted = [name.strip() for name in with_.split(",") if name.strip()], _numbers(iterations)
    with progress_bar("measuring", COUNTED) as show:
        lab = compare_objectives(opened, run, methods, wanted, parse_overrides(set_), show)
    gains = {} if forks is None else {n: fork_gains(opened, lab, n, forks) for n in lab.found}
    if as_json:
        print_json(_facts(lab, gains))
    else:
        _print(Console(), lab)
        for iteration, found in gains.items():
            _print_gains(Console(), lab, iteration, found)
    if output is not None:
        page = render_objectives(lab.run, opened.url, lab.found, lab.left_out, lab.kept, lab.not_measured)
        say(Console(stderr=True), f"written: {write_page(output, page)}")


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--iterations {text}: expected comma-separated numbers, such as 10,20,30") from error


def _print(console: Console, lab: Lab) -> None:
    for iteration, found in lab.found.items():
        print_table(console, [_row(found, name) for name in found.values], title=f"{lab.run}, iteration {iteration}")
    for sentence in _LEGEND:
        say(console, sentence)
    for name, settings in lab.kept.items():
        say(console, f"{name}: measured on the stored data, without {', '.join(settings)}")
    if lab.num_computed:
        say(console, f"computed and stored for this: {counted(lab.num_computed, 'stage')}")
    for name, reason in lab.left_out.items():
        say(console, f"left out: {name}: {reason}")
    for iteration, reason in lab.not_measured.items():
        say(console, f"not measured: iteration {iteration}: {reason}")


def _print_gains(console: Console, lab: Lab, iteration: int, gains: list[Gain]) -> None:
    if gains:
        rows = [{**asdict(gain), "gain": f"{gain.gain:+.3f}"} for gain in gains]
        print_table(console, rows, title=f"forks of {lab.run} from checkpoint {iteration}", numbers={"gain"})
    for score, found in predictions(lab, iteration, gains).items():
        say(
            console,
            f"rank correlation of {score} with the gain: {found.rho:.2f} [{found.low:.2f}, {found.high:.2f}] over "
            f"{found.num} objectives",
        )
    if len(gains) < MIN_PAIRS:
        say(
            console,
            f"{len(gains)} objectives with a stored fork from checkpoint {iteration}, but a rank correlation needs "
            f"{MIN_PAIRS}: `ragen fork {lab.run} --from {iteration} --method NAME`",
        )


def _row(found: Compared, name: str) -> dict[str, Any]:
    values, cosines = found.values[name], found.cosines[name]
    others = {other: cosine for other, cosine in cosines.items() if other != name}
    nearest = max(others, key=lambda other: others[other], default=None)
    return {
        "objective": name,
        "norm": _short(values.get("norm"), ".3g"),
        "signal to noise": _short(values.get("signal_to_noise"), ".3g"),
        "cosine": _short(cosines.get(OWN), ".2f"),
        "nearest": "" if nearest is None else f"{nearest} {others[nearest]:.2f}",
        "share by turn": " ".join(_short(share, "z.2f") for share in found.by_turn(name, "share")),
        "positive by turn": " ".join(_short(share, ".2f") for share in found.by_turn(name, "positive")),
    }


def _short(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _facts(lab: Lab, gains: Mapping[int, list[Gain]]) -> dict[str, Any]:
    return {
        "run": lab.run,
        "iterations": {
            iteration: {"objectives": found.values, "cosines": found.cosines} for iteration, found in lab.found.items()
        },
        "left_out": lab.left_out,
        "kept": lab.kept,
        "not_measured": lab.not_measured,
        "num_computed": lab.num_computed,
        "forks": {
            iteration: {
                "gains": [{**asdict(gain), "gain": gain.gain} for gain in found],
                "rank_correlations": {
                    score: one.model_dump(mode="json") for score, one in predictions(lab, iteration, found).items()
                },
            }
            for iteration, found in gains.items()
        },
    }
