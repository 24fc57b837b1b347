"""`starpo train`: train, on the local server or in this process, and write the run's report."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from starpo.flows.cli.options import (
    JsonOption,
    LocalOption,
    MethodOption,
    SetOption,
    StoreOption,
    parse_overrides,
    stoppable,
)
from starpo.flows.console.start import train_settings
from starpo.flows.console.terminal import Console


def train(
    preset: Annotated[str, typer.Argument(help="Preset (`starpo presets` lists them), or a TOML file of settings.")],
    set_: SetOption = None,
    method: MethodOption = None,
    seed: Annotated[int | None, typer.Option(help="The run's seed.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Number of iterations, an update each.")] = None,
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option(help="Name of the run. Default: preset, seed, settings and code.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Reuse nothing from the store.")] = False,
    local: LocalOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train with a preset or a TOML file, on the local server or with --local in this process, and follow the run."""
    overrides = parse_overrides(set_, method)
    if fresh:
        overrides = {**overrides, "fresh": datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")}
    console = Console(stderr=as_json)
    with stoppable(local):
        opened, run = train_settings(
            preset, overrides, console, seed=seed, iterations=iterations, store=store, run=run, is_local=local
        )
    from starpo.flows.console.conclusion import conclude  # what reports need, when there is something to report

    conclude(opened, run, as_json)
