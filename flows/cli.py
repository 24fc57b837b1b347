"""The `ragen` command. Every command imports what it needs inside itself, so that `--help` answers at once."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ragen.errors import StarPOError

app = typer.Typer(
    name="ragen",
    help="Train language-model agents with StarPO; every stage is stored, validated and replayable.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

StoreOption = Annotated[
    str | None, typer.Option("--store", help="Store: a folder or an fsspec URL. Default: RAGEN_STORE, or var/store.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="A setting by dotted path; may be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
RunArgument = Annotated[str, typer.Argument(help="Name of the run; `ragen runs` lists them.")]


def main() -> None:
    """Entry point: an error that a user can mend is one message and exit code 1, never a traceback."""
    try:
        app()
    except StarPOError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)


@app.command()
def train(
    preset: Annotated[str, typer.Argument(help="Preset; `ragen presets` lists them.")],
    set_: SetOption = None,
    seed: Annotated[int | None, typer.Option(help="The run's seed.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Updates.")] = None,
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option(help="Name of the run. Default: preset, seed and settings.")] = None,
) -> None:
    """Start the local server if need be, run the deployment starpo/PRESET, and follow it."""
    from flows.train import train_preset

    overrides = _overrides(set_)
    train_preset(preset, overrides=overrides, seed=seed, iterations=iterations, store=store, run=run)


@app.command()
def up() -> None:
    """Start a local Prefect server and the process that serves the deployments."""
    from flows import server
    from ragen.config.runtime import Runtime

    url = server.start(Runtime().state_dir)
    typer.echo(f"Prefect: {url.removesuffix('/api')}")
    typer.echo("Try: prefect deployment run starpo/sokoban")


@app.command()
def down() -> None:
    """Stop what `up` started."""
    from flows import server
    from ragen.config.runtime import Runtime

    stopped = server.stop(Runtime().state_dir)
    typer.echo(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


@app.command()
def serve() -> None:
    """Serve the deployments in this terminal, for a server that already runs."""
    from flows.serve import serve_deployments

    serve_deployments()


@app.command()
def follow(run: RunArgument, store: StoreOption = None) -> None:
    """Show a run's live progress until it ends."""
    from rich.console import Console

    from flows.follow import follow_run

    opened = _store(store)
    opened.runs.get(run)
    follow_run(opened, run, Console())


@app.command()
def runs(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the runs of a store, newest first."""
    from flows import listing

    listing.print_runs(_store(store), as_json)


@app.command()
def show(
    run: RunArgument,
    iteration: Annotated[int | None, typer.Option(help="One iteration: its stages, metrics and groups.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="One trajectory of that iteration, turn by turn.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run, one of its iterations, or one of its trajectories."""
    from flows import listing

    opened = _store(store)
    if trajectory is not None:
        listing.print_trajectory(opened, run, iteration or 0, trajectory, as_json)
    elif iteration is not None:
        listing.print_iteration(opened, run, iteration, as_json)
    else:
        listing.print_run(opened, run, as_json)


@app.command()
def report(
    run: RunArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: var/reports/RUN.html")] = None,
    store: StoreOption = None,
) -> None:
    """Write a run's report: one self-contained HTML page."""
    from flows.train import write_report

    typer.echo(write_report(_store(store), run, output))


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Names of runs; those of one preset share a colour.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the SVG goes.")] = Path("comparison.svg"),
    title: Annotated[str, typer.Option(help="Above the picture.")] = "Success by run",
    store: StoreOption = None,
) -> None:
    """Draw the success curves of several runs into one SVG."""
    from flows.train import write_comparison

    typer.echo(write_comparison(_store(store), runs, output, title))


@app.command()
def validate(
    file: Annotated[str, typer.Argument(help="A TOML file of settings, or the name of a preset.")],
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check settings, and say what they resolve to."""
    from flows.presets import preset

    config = preset(file, _overrides(set_))
    if as_json:
        typer.echo(config.model_dump_json(indent=2))
    else:
        typer.echo(f"{file}: valid; {config.iterations} iterations of {config.environment.type}. --json shows it all.")


@app.command()
def presets(as_json: JsonOption = False) -> None:
    """List the presets."""
    from flows import listing

    listing.print_presets(as_json)


@app.command()
def envs(
    check: Annotated[bool, typer.Option("--check", help="Run the environment checker over all of them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the environments and their variants."""
    from flows import listing

    listing.print_environments(check, as_json)


@app.command()
def play(
    env: Annotated[str, typer.Argument(help="A variant of `ragen envs`.")],
    seed: Annotated[int, typer.Option(help="Seed of the initial state.")] = 0,
) -> None:
    """Play an environment yourself, boards drawn."""
    from flows.play import play_in_terminal

    play_in_terminal(env, seed)


def _store(url: str | None) -> Any:
    from ragen.config.runtime import Runtime
    from ragen.store import Store

    return Store(url or Runtime().store)


def _overrides(assignments: list[str] | None) -> dict[str, Any]:
    from ragen.config.load import parse_override

    return dict(parse_override(assignment) for assignment in assignments or [])


if __name__ == "__main__":
    main()
