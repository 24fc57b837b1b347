"""Start, watch and stop runs."""

from typing import Annotated

import typer

from starpo.flows.cli.common import TRAIN, RunArgument, SetOption, StoreOption, app, open_store, parse_overrides


@app.command(rich_help_panel=TRAIN)
def train(
    preset: Annotated[str, typer.Argument(help="Preset (`ragen presets` lists them), or a TOML file of settings.")],
    set_: SetOption = None,
    seed: Annotated[int | None, typer.Option(help="The run's seed.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Updates.")] = None,
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option(help="Name of the run. Default: preset, seed, settings and code.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Reuse nothing from the store.")] = False,
) -> None:
    """Start the local server if need be, run the deployment starpo/PRESET (of a file starpo/custom), and follow it."""
    from starpo.flows.console.train import train_and_follow

    overrides = parse_overrides(set_)
    train_and_follow(
        preset,
        overrides=overrides,
        seed=seed,
        iterations=iterations,
        store=store,
        run=run,
        should_reuse=not fresh,
    )


@app.command(rich_help_panel=TRAIN)
def follow(run: RunArgument, store: StoreOption = None) -> None:
    """Show a run's live progress until it ends."""
    from starpo.flows.console.follow import follow_run
    from starpo.flows.console.terminal import Console

    opened = open_store(store)
    opened.runs.get(run)
    follow_run(opened, run, Console())


@app.command(rich_help_panel=TRAIN)
def cancel(run: RunArgument, store: StoreOption = None) -> None:
    """Stop a running or waiting run, ablation or sweep; what it stored is kept."""
    from starpo.flows.console.cancel import cancel_run
    from starpo.flows.console.terminal import Console

    cancel_run(open_store(store), run, Console())
