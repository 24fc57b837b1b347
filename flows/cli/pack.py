"""`ragen pack`: a run as one file, for verification elsewhere."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, open_store
from starpo.flows.console.progress import SHARE, progress_bar
from starpo.flows.console.terminal import Console, print_json, say, write
from starpo.ragen.store.keeping.packing import pack_run
from starpo.ragen.store.remote.location import Location


def pack(
    run: RunArgument,
    file: Annotated[Path, typer.Option("-o", "--output", help="A new file, such as run.tar.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run into one file, with everything needed to verify it elsewhere, except the answers of a judge, and
    without secrets.
    """
    with progress_bar(f"packing {run}", SHARE) as on_progress:
        packed = pack_run(Location(open_store(store).url), run, file, on_progress)
    if as_json:
        print_json({"file": str(file), **asdict(packed)})
        return
    write(f"{run}: {packed.num_artifacts} artifacts, {decimal(packed.size_bytes)} in {file}")
    if packed.num_dropped:
        say(Console(), f"not kept, can be rebuilt: {packed.num_dropped}")
    write(f"sha256 {packed.sha256}")
