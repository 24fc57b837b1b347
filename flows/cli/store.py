"""`ragen store`: what is in a store, what may go, whether it is sound, and copies of runs."""

from datetime import timedelta
from typing import Annotated

import typer

from starpo.flows.cli.common import KEEP, JsonOption, RunArgument, StoreOption, app, open_store

store_app = typer.Typer(
    help="See what is in a store, delete what no run needs, check it, copy runs.", no_args_is_help=True
)
app.add_typer(store_app, name="store", rich_help_panel=KEEP)

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@store_app.command()
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; delete nothing.")] = False,
    min_age: Annotated[str, typer.Option(help="Keep what is younger, such as 90m, 12h, 1d.")] = "1d",
    quarantine_older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Delete quarantined datasets that are older. Default: none.")
    ] = None,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Delete even if runs need artifacts that are missing or damaged.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete what no run needs: artifacts that no run reaches, and what killed writers left."""
    from starpo.flows.console.store import print_garbage, progress_bar
    from starpo.ragen.store.keeping.garbage import delete_garbage, find_garbage
    from starpo.ragen.store.remote.location import Location

    age = _age(min_age, "--min-age")
    quarantine_age = None if quarantine_older_than is None else _age(quarantine_older_than, "--quarantine-older-than")
    location = Location(open_store(store).url)
    garbage = find_garbage(location, min_age=age, quarantine_age=quarantine_age)
    restored = []
    if not dry_run:
        with progress_bar("deleting") as on_progress:
            restored = delete_garbage(location, garbage, should_ignore_faults=ignore_missing, on_progress=on_progress)
    print_garbage(location.name, garbage, restored, is_dry_run=dry_run, as_json=as_json)


@store_app.command()
def forget(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StoreOption = None,
) -> None:
    """Delete a run's records; `gc` then deletes the artifacts that no other run needs."""
    from starpo.flows.console.terminal import write

    opened = open_store(store)
    opened.runs.get(run)
    if not yes:
        typer.confirm(f"Forget run {run} in {opened.url}?", abort=True)
    opened.runs.forget(run)
    write(f"{run} is forgotten; `ragen store gc` deletes what only it needed")


@store_app.command()
def du(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show what takes up the store, by kind and by run; runs share what they have in common."""
    from starpo.flows.console.store import print_usage
    from starpo.ragen.store.keeping.usage import measure
    from starpo.ragen.store.remote.location import Location

    location = Location(open_store(store).url)
    print_usage(location.name, measure(location), as_json)


@store_app.command()
def verify(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Re-hash every file of every artifact, and look for artifacts that runs need and lack. Exit code 1: a fault."""
    from starpo.flows.console.store import print_verification, progress_bar
    from starpo.ragen.store.keeping.integrity import verify_store
    from starpo.ragen.store.remote.location import Location

    location = Location(open_store(store).url)
    with progress_bar("hashing") as on_progress:
        verification = verify_store(location, on_progress)
    print_verification(location.name, verification, as_json)
    raise typer.Exit(1 if verification.damages else 0)


@store_app.command()
def copy(
    run: RunArgument,
    url: Annotated[str, typer.Argument(help="The other store: a folder or an fsspec URL.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a run with everything it needs to another store, and with the results of sweeps and ablations all of whose
    runs are there then. Copying again copies what is not there yet.
    """
    from starpo.flows.console.store import print_copy, progress_bar
    from starpo.ragen.store.keeping.copying import copy_run
    from starpo.ragen.store.remote.location import Location

    source, target = Location(open_store(store).url), Location(url)
    with progress_bar(f"copying {run}") as on_progress:
        done = copy_run(source, run, target, on_progress)
    print_copy(target.name, done, as_json)


def _age(text: str, option: str) -> timedelta:
    from starpo.ragen.core.errors import ConfigError

    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in _UNITS:
        raise ConfigError(f"{option} {text!r} is no age; expected a whole number and s, m, h, d or w, such as 12h")
    return timedelta(**{_UNITS[unit]: int(number)})
