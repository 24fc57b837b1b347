"""Start, serve and watch runs."""

from typing import Annotated

import typer

from flows.cli.common import RunArgument, SetOption, StoreOption, app, open_store, parse_overrides


@app.command()
def train(
    preset: Annotated[str, typer.Argument(help="Preset (`ragen presets` lists them), or a TOML file of settings.")],
    set_: SetOption = None,
    seed: Annotated[int | None, typer.Option(help="The run's seed.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Updates.")] = None,
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option(help="Name of the run. Default: preset, seed and settings.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do everything anew: reuse nothing that is stored.")] = False,
) -> None:
    """Start the local server if need be, run the deployment starpo/PRESET (of a file starpo/custom), and follow it."""
    from flows.console.train import train_and_follow

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


@app.command()
def up() -> None:
    """Start a local Prefect server and the process that serves the deployments."""
    from flows.console.up_and_down import start_here

    start_here()


@app.command()
def down() -> None:
    """Stop what `up` started, and with it the runs that are at work; what they stored is kept."""
    from flows.console.up_and_down import stop_here

    stop_here()


@app.command()
def serve() -> None:
    """Serve the deployments in this terminal, for a server that already runs."""
    from flows.serve import serve_deployments

    serve_deployments()


@app.command()
def follow(run: RunArgument, store: StoreOption = None) -> None:
    """Show a run's live progress until it ends."""
    from flows.console.follow import follow_run
    from flows.console.terminal import Console

    opened = open_store(store)
    opened.runs.get(run)
    follow_run(opened, run, Console())


@app.command()
def cancel(run: RunArgument, store: StoreOption = None) -> None:
    """Stop a run that is at work or waits; what it stored is kept. Ablations and sweeps too, by their names."""
    from flows.console.cancel import cancel_run
    from flows.console.terminal import Console

    cancel_run(open_store(store), run, Console())
