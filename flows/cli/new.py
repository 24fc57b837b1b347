"""A start for code of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.common import BEFORE, app

new = typer.Typer(help="Write a working start for code of your own.", no_args_is_help=True)
app.add_typer(new, name="new", rich_help_panel=BEFORE)


@new.command()
def environment(
    name: Annotated[str, typer.Argument(help="Name of its module, such as stairs.")],
    folder: Annotated[Path, typer.Option(help="Where the files go.")] = Path(),
) -> None:
    """Write an environment, its test, and settings to train on it (docs/extend.md)."""
    from starpo.flows.console.new import write_environment

    write_environment(name, folder)
