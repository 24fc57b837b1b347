"""Bring trajectories that were made elsewhere into a store."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.common import KEEP, JsonOption, SetOption, StoreOption, app, open_store, parse_overrides


@app.command("import", rich_help_panel=KEEP)
def import_(
    run: Annotated[str, typer.Argument(help="What the run will be called.")],
    files: Annotated[
        list[Path], typer.Argument(help="Files of dataset 'turns' (Parquet, Arrow, JSON lines), one an iteration.")
    ],
    preset: Annotated[str, typer.Option("--preset", help="Settings of reward, filter and environment.")] = "sokoban",
    set_: SetOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store trajectories made elsewhere as a run, to query, audit and show; invalid rows go to quarantine."""
    from starpo.flows.console.imports import import_trajectories

    import_trajectories(open_store(store), run, files, preset, parse_overrides(set_), as_json=as_json)
