"""What there is to choose from: settings, presets, environments."""

from typing import Annotated

import typer

from starpo.flows.cli.common import BEFORE, JsonOption, SetOption, app, parse_overrides


@app.command(rich_help_panel=BEFORE)
def validate(
    file: Annotated[str, typer.Argument(help="A TOML file of settings, or the name of a preset.")],
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check settings, and that a run with them has what it needs here; say what they resolve to."""
    from starpo.flows.console.terminal import print_json, write
    from starpo.flows.presets import preset
    from starpo.ragen.readiness import check_ready

    config = preset(file, parse_overrides(set_))
    check_ready(config, file)
    if as_json:
        print_json(config.model_dump(mode="json"))
    else:
        write(f"{file}: valid; {config.iterations} iterations of {config.environment.type}. --json shows it all.")


@app.command(rich_help_panel=BEFORE)
def presets(as_json: JsonOption = False) -> None:
    """List the presets."""
    from starpo.flows.console import listing

    listing.print_presets(as_json)


@app.command(rich_help_panel=BEFORE)
def envs(
    names: Annotated[list[str] | None, typer.Argument(help="Variants, or module:attribute. Default: all.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Run the environment checker over them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the environments and their variants. Exit code 1 if the checker finds a fault."""
    from starpo.flows.console import listing

    if listing.print_environments(names or [], check, as_json):
        raise typer.Exit(1)


@app.command(rich_help_panel=BEFORE)
def play(
    env: Annotated[str, typer.Argument(help="A variant of `ragen envs`, or module:attribute.")],
    seed: Annotated[int, typer.Option(help="Seed of the initial state.")] = 0,
) -> None:
    """Play an environment yourself, boards drawn."""
    from starpo.flows.console.play import play_in_terminal

    play_in_terminal(env, seed)
