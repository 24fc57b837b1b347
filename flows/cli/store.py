"""`starpo store`: the content of a store, garbage collection, integrity checks, and copies of runs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from starpo.flows.cli.commands import STYLE
from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, judging, open_store
from starpo.flows.console.documents.stores import (
    Amount,
    CopiedRun,
    DeletedGarbage,
    ForgottenRun,
    KindAmount,
    StoreIntegrity,
    StoreUsage,
)
from starpo.flows.console.progress import SHARE, progress_bar
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say, write
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store.keeping.copying import Copy, copy_run
from starpo.ragen.store.keeping.garbage import MIN_AGE, Garbage, delete_garbage, find_garbage
from starpo.ragen.store.keeping.integrity import IntegrityCheck, verify_store
from starpo.ragen.store.keeping.inventory import StoredFolder
from starpo.ragen.store.keeping.reachability import describe
from starpo.ragen.store.keeping.usage import Usage, measure
from starpo.ragen.store.remote.opening import open_location

app = typer.Typer(no_args_is_help=True, **STYLE)  # type: ignore[arg-type]
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_OF_KINDS = ("kind", "number", "bytes", "of no run", "their bytes")
_OF_RUNS = ("run", "artifacts", "bytes", "its own", "shared")


@app.callback()
def store() -> None:
    """See what is in a store, delete what no run needs, check it, copy runs."""


@app.command()
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    min_age: Annotated[str, typer.Option(help="Keep anything younger, such as 0s, 90m, 12h, 1d.")] = "1d",
    quarantine_older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Also delete older quarantined datasets. Default: none.")
    ] = None,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Delete even if runs need artifacts that are missing or damaged.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete what no run needs: artifacts that no run reaches, and what killed writers left."""
    age = _parsed_age(min_age, "--min-age")
    quarantine_age = (
        None if quarantine_older_than is None else _parsed_age(quarantine_older_than, "--quarantine-older-than")
    )
    location = open_location(open_store(store).url)
    garbage = find_garbage(location, min_age=age, quarantine_age=quarantine_age)
    if not dry_run:
        with progress_bar("deleting", SHARE) as on_progress:
            delete_garbage(location, garbage, should_ignore_faults=ignore_missing, on_progress=on_progress)
    print_garbage(location.name, garbage, is_dry_run=dry_run, as_json=as_json)


@app.command()
def forget(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a run's records; `gc` then deletes the artifacts that no other run needs."""
    opened = open_store(store)
    opened.runs.get(run)
    if not yes:
        typer.confirm(f"Forget run {run} in {opened.url}?", abort=True, err=as_json)
    opened.runs.forget(run)
    if as_json:
        print_json(ForgottenRun(run=run, store=opened.url))
        return
    write(
        f"{run} is forgotten; `starpo store gc` deletes what only it needed, once that is "
        f"{_age(MIN_AGE.total_seconds())} old (sooner: --min-age 1h, or 0s while no run is active)"
    )


@app.command()
def du(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show what takes up space, by kind and by run; runs share what they have in common."""
    location = open_location(open_store(store).url)
    print_usage(location.name, measure(location), as_json)


@app.command()
def verify(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Compare every file, all rows and all records with the digests that were recorded, and look for artifacts that
    runs need and lack. Exit code 1: a fault. 2: the store could not be read.
    """
    with judging(), progress_bar("hashing", SHARE) as on_progress:
        location = open_location(open_store(store).url)
        verification = verify_store(location, on_progress)
    print_verification(location.name, verification, as_json)
    raise typer.Exit(1 if verification.damages else 0)


@app.command()
def copy(
    run: RunArgument,
    url: Annotated[str, typer.Argument(help="The other store: a folder or an fsspec URL.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a run with everything it needs to another store. Copying again copies what is missing."""
    source, target = open_location(open_store(store).url), open_location(url)
    with progress_bar(f"copying {run}", SHARE) as on_progress:
        done = copy_run(source, run, target, on_progress)
    print_copy(target.name, done, as_json)


def print_garbage(url: str, garbage: Garbage, *, is_dry_run: bool, as_json: bool) -> None:
    """Print what was or would be deleted, by kind, and what is kept and why."""
    gone = garbage.doomed
    by_kind: dict[str, list[StoredFolder]] = {}
    for doomed in gone:
        by_kind.setdefault(doomed.kind, []).append(doomed.folder)
    if as_json:
        print_json(
            DeletedGarbage(
                store=url,
                dry_run=is_dry_run,
                deleted=[
                    KindAmount(kind=kind, **_amount(folders).model_dump()) for kind, folders in sorted(by_kind.items())
                ],
                total=_amount([doomed.folder for doomed in gone]),
                folders=[doomed.folder.path for doomed in gone],
                kept=_amount(garbage.kept),
                young=_amount(garbage.young),
                quarantined=_amount(garbage.quarantined),
                dropped=[str(artifact) for artifact in garbage.dropped],
                faults=[str(fault) for fault in garbage.faults],
                running=garbage.running,
            )
        )
        return
    console = Console()
    if gone:
        rows = [
            {"kind": kind, "number": len(folders), "bytes": _bytes(folders)}
            for kind, folders in sorted(by_kind.items())
        ]
        rows.append({"kind": "total", "number": len(gone), "bytes": _bytes([doomed.folder for doomed in gone])})
        title = f"{'would be deleted' if is_dry_run else 'deleted'} from {url}"
        print_table(console, rows, title=title, numbers=("bytes",))
    else:
        say(console, f"nothing in {url} can be deleted")
    say(console, f"kept: {len(garbage.kept)} artifacts that runs need, {_bytes(garbage.kept)}")
    for what, folders in {
        f"kept: younger than {_age(garbage.min_age.total_seconds())} (shorter: --min-age AGE)": garbage.young,
        "kept: in quarantine (--quarantine-older-than AGE)": garbage.quarantined,
    }.items():
        if folders:
            say(console, f"{what}: {len(folders)}, {_bytes(folders)}")
    if garbage.dropped:
        say(console, f"not kept, can be rebuilt: {len(garbage.dropped)} that runs refer to")
    if garbage.running:
        say(console, f"running: {', '.join(garbage.running)}")
    if garbage.faults:
        refused = "this would be refused" if is_dry_run else "deleted anyway"
        say(console, f"runs need artifacts that are missing or damaged ({refused}):\n{describe(garbage.faults)}")


def print_usage(url: str, usage: Usage, as_json: bool) -> None:
    """Print the disk usage of a store, by kind and by run."""
    if as_json:
        print_json(StoreUsage(store=url, size_bytes=usage.size_bytes, **vars(usage)))
        return
    console = Console()
    kinds: list[dict[str, Any]] = []
    for kind in usage.kinds:
        unreached = (kind.unreached_number, decimal(kind.unreached_bytes)) if kind.unreached_number else (None, None)
        facts = (kind.kind, kind.number, decimal(kind.size_bytes), *unreached)
        kinds.append(dict(zip(_OF_KINDS, facts, strict=True)))
    kinds.append(dict(zip(_OF_KINDS, ("total", None, decimal(usage.size_bytes), None, None), strict=True)))
    print_table(console, kinds, title=f"{url} by kind", numbers=_OF_KINDS[1:])
    extras = {"not kept": "num_dropped", "missing": "num_faults"}
    shown = {name: field for name, field in extras.items() if any(getattr(run, field) for run in usage.runs)}
    runs = [
        {
            "run": run.run,
            "artifacts": run.number,
            "bytes": decimal(run.size_bytes),
            "its own": decimal(run.own_bytes),
            "shared": decimal(run.shared_bytes),
            **{name: getattr(run, field) for name, field in shown.items()},
        }
        for run in usage.runs
    ]
    print_table(console, runs, title="by run", names=[*_OF_RUNS, *shown], numbers=("bytes", "its own", "shared"))
    for run, fault in usage.damaged.items():
        say(console, f"{run} is damaged, and what only it needs is counted as needed by no run: {fault}")


def print_verification(url: str, verification: IntegrityCheck, as_json: bool) -> None:
    """Print the damage found in a store."""
    if as_json:
        print_json(StoreIntegrity(store=url, **vars(verification)))
        return
    console = Console()
    damages = verification.damages
    if damages:
        rows = [{"where": d.place, "what": d.what, "needed by": ", ".join(d.runs)} for d in damages]
        print_table(console, rows, title=f"damaged in {url}")
    say(
        console,
        f"{verification.num_artifacts} artifacts, {decimal(verification.size_bytes)}: "
        + (f"faults: {len(damages)}" if damages else "files, rows and seals are as recorded"),
    )
    if not damages:
        say(console, "whether results follow from their inputs: starpo verify RUN")


def print_copy(url: str, copy: Copy, as_json: bool) -> None:
    """Print the result of copying a run."""
    if as_json:
        print_json(CopiedRun(store=url, **vars(copy)))
        return
    console = Console()
    say(console, f"{copy.run} is in {url}, every copy checked by its digests")
    say(console, f"copied: {copy.num_copied} artifacts, {decimal(copy.bytes_copied)}")
    say(console, f"already there: {copy.num_present} artifacts, {decimal(copy.bytes_present)}")
    if copy.num_dropped:
        say(console, f"not kept, can be rebuilt: {copy.num_dropped}")
    if copy.is_running:
        say(console, "the run is still running: copy it again later to get the rest")


def _amount(folders: Sequence[StoredFolder]) -> Amount:
    return Amount(number=len(folders), size_bytes=sum(folder.size_bytes for folder in folders))


def _bytes(folders: Sequence[StoredFolder]) -> str:
    return decimal(_amount(folders).size_bytes)


def _age(seconds: float) -> str:
    for unit, length in {"d": 86_400, "h": 3_600, "m": 60}.items():
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def _parsed_age(text: str, option: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in _UNITS:
        raise ConfigError(f"{option} {text!r} is not an age; expected a whole number and s, m, h, d or w, such as 12h")
    return timedelta(**{_UNITS[unit]: int(number)})
