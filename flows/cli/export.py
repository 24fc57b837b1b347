"""`ragen export`: a run's trajectories in the formats of other tools."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from starpo.flows.cli.options import JsonOption, PublicOption, PushOption, RunArgument, StoreOption, open_store
from starpo.flows.console.pushing import named_repository, push_folder, pushed_words
from starpo.flows.console.terminal import Console, print_json, say, write
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.exchange.cards import write_dataset_card
from starpo.ragen.evidence.exchange.choosing import parse_choice, parse_iterations
from starpo.ragen.evidence.exchange.exporting import FORMATS, export_run
from starpo.ragen.evidence.exchange.played import Recorded

_UNITS = {
    "messages": "conversations",
    "atif": "documents",
    "verl": "lines",
    "preferences": "pairs",
    "datasets": "trajectories",
}
"""Format -> unit in which the number of written items is given."""


def export(
    run: RunArgument,
    form: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")],
    folder: Annotated[Path, typer.Option("-o", "--output", help="A new folder; an existing one is refused.")],
    iterations: Annotated[str | None, typer.Option(help="Iterations, such as 0-3,7. Default: all.")] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="success, kept, valid, return>=X; may be repeated.")
    ] = None,
    pair: Annotated[
        Literal["first", "all"] | None,
        typer.Option("--pair", help="Preferences: compare the first responses only, or all. Default: all."),
    ] = None,
    push: PushOption = None,
    public: PublicOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a run's trajectories as chat messages, ATIF, verl's lines, preference pairs or a datasets folder."""
    if pair is not None and form != "preferences":
        raise ConfigError(f"--pair {pair} chooses preference pairs, and --format {form} has none; leave it out")
    choice = parse_choice(where or [])
    repository = named_repository(push, "dataset", public)
    opened = open_store(store)
    recorded = Recorded(opened, run, parse_iterations(iterations) if iterations is not None else None)
    with Console(stderr=True).status("exporting"):
        done = export_run(recorded, form, folder, choice, pair or "all")
    pushed = None
    if repository is not None:
        write_dataset_card(folder, opened, opened.runs.get(run), form, sorted(done.iterations))
        pushed = push_folder(repository, folder, f"Trajectories of run {run}", is_kept=True)
    if as_json:
        facts = {**asdict(done), "iterations": sorted(done.iterations)}
        facts |= {"pushed": asdict(pushed)} if pushed else {}
        print_json({"run": run, "format": form, "folder": str(folder), **facts})
        return
    if done.reused:
        say(Console(), f"{len(done.reused)} iterations share an earlier one's rollout, which was written once")
    write(
        f"{done.num_written} {_UNITS[form]} of {done.num_chosen} trajectories (of {done.num_trajectories}, "
        f"{len(done.iterations)} iterations) in {folder}"
    )
    if pushed:
        write(pushed_words(pushed))
