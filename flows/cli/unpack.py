"""`ragen unpack`: copy the run of a packed file into a store."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.cli.store import print_copy
from starpo.flows.console.progress import SHARE, progress_bar
from starpo.ragen.store.keeping.packing import unpack_run
from starpo.ragen.store.remote.location import Location


def unpack(
    file: Annotated[Path, typer.Argument(help="A file that `ragen pack` wrote.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the run of a packed file into a store; every artifact is checked by its digests.

    Run `ragen verify` afterwards to recompute it.
    """
    target = Location(open_store(store).url)
    with progress_bar(f"unpacking {file.name}", SHARE) as on_progress:
        done = unpack_run(file, target, on_progress)
    print_copy(target.name, done, as_json)
