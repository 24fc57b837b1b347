"""`starpo objectives`: gradients that other objectives would have had on a run's stored rollouts."""

from typing import Annotated, Any

import typer

from starpo.flows.api.objectives import ALL, OWN, Lab, compare_objectives
from starpo.flows.cli.options import JsonOption, RunArgument, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.documents.measuring import Objectives
from starpo.flows.console.progress import status_line
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.learning.metrics.objectives import Compared

_LEGEND = (
    "norm: of the mean gradient; signal to noise: its squared norm over the variance of one group's gradient",
    "cosine: with the run's own gradient; nearest: the other objective whose gradient is most similar",
)


def objectives(
    run: RunArgument,
    iteration: Annotated[int | None, typer.Option(help="Iteration to measure. Default: the last update.")] = None,
    with_: Annotated[
        str, typer.Option("--with", help="Methods (`starpo presets --methods`) or TOML files, comma-separated.")
    ] = ALL,
    set_: SetOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare objectives on a run's stored rollouts, without a step: where their gradients point, how noisy they are.

    Each replaces the objective of the run's settings. Stored rewards, selections and rollouts stay as they are.
    Results are stored.
    """
    methods = [name.strip() for name in with_.split(",") if name.strip()]
    with status_line(f"measuring objectives on {run}"):
        lab = compare_objectives(open_store(store), run, methods, iteration, parse_overrides(set_))
    if as_json:
        print_json(
            Objectives(
                run=lab.run,
                iteration=lab.iteration,
                objectives=lab.comparison.values,
                cosines=lab.comparison.cosines,
                left_out=lab.left_out,
                kept=lab.kept,
            )
        )
    else:
        _print(Console(), lab)


def _print(console: Console, lab: Lab) -> None:
    rows = [_row(lab.comparison, name) for name in lab.comparison.values]
    print_table(console, rows, title=f"{lab.run}, iteration {lab.iteration}")
    for sentence in _LEGEND:
        say(console, sentence)
    for name, settings in lab.kept.items():
        say(console, f"{name}: measured on the stored data, without {', '.join(settings)}")
    for name, reason in lab.left_out.items():
        say(console, f"left out: {name}: {reason}")


def _row(comparison: Compared, name: str) -> dict[str, Any]:
    values, cosines = comparison.values[name], comparison.cosines[name]
    others = {other: cosine for other, cosine in cosines.items() if other != name}
    nearest = max(others, key=lambda other: others[other], default=None)
    return {
        "objective": name,
        "norm": _short(values.get("norm"), ".3g"),
        "signal to noise": _short(values.get("signal_to_noise"), ".3g"),
        "cosine": _short(cosines.get(OWN), ".2f"),
        "nearest": "" if nearest is None else f"{nearest} {others[nearest]:.2f}",
    }


def _short(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
