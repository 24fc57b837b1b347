"""The checkpoints of a run."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.common import AGAIN, JsonOption, RunArgument, StoreOption, app, open_store


@app.command(rich_help_panel=AGAIN)
def checkpoint(
    run: RunArgument,
    iteration: Annotated[
        int | None, typer.Option(help="The checkpoint after this many iterations; 0 is the first.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to this folder. Default: back into the store.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a run's checkpoints, or export one; a dropped one is derived again from stored rollouts and checked."""
    from starpo.flows.console import checkpoints
    from starpo.ragen.core.errors import ConfigError

    opened = open_store(store)
    if iteration is not None:
        checkpoints.print_checkpoint(opened, run, iteration, output, as_json)
    elif output is not None:
        raise ConfigError("--output needs --iteration N: of which checkpoint?")
    else:
        checkpoints.print_checkpoints(opened, run, as_json)
