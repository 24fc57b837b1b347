"""Tables of what is in a store, what may go, what is damaged, what was copied; the same facts as JSON for machines."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from flows.console.terminal import new_table, plain, say
from ragen.store.copying import Copy
from ragen.store.integrity import Verification
from ragen.store.inventory import StoredFolder
from ragen.store.reachability import describe
from ragen.store.retention import Doomed, Garbage
from ragen.store.usage import Usage


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on the error stream, to be told how much is done of how much; none where that is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def print_garbage(url: str, garbage: Garbage, restored: Sequence[Doomed], *, is_dry_run: bool, as_json: bool) -> None:
    """What went, or would go, by kind; what stays, and why."""
    gone = [doomed for doomed in garbage.doomed if doomed not in restored]
    by_kind: dict[str, list[StoredFolder]] = {}
    for doomed in gone:
        by_kind.setdefault(doomed.kind, []).append(doomed.folder)
    if as_json:
        _print_json(
            {
                "store": url,
                "dry_run": is_dry_run,
                "deleted": [{"kind": kind, **_amount(folders)} for kind, folders in sorted(by_kind.items())],
                "total": _amount([doomed.folder for doomed in gone]),
                "folders": [doomed.folder.path for doomed in gone],
                "kept": _amount(garbage.kept),
                "young": _amount(garbage.young),
                "quarantined": _amount(garbage.quarantined),
                "put_back": [doomed.folder.path for doomed in restored],
                "dropped": [str(artifact) for artifact in garbage.dropped],
                "faults": [str(fault) for fault in garbage.faults],
                "running": garbage.running,
            }
        )
        return
    console = Console()
    if gone:
        table = _table(
            f"{'would be deleted' if is_dry_run else 'deleted'} from {url}", "kind", numbers=["number", "bytes"]
        )
        for kind, folders in sorted(by_kind.items()):
            _add(table, kind, len(folders), _bytes(folders))
        _add(table, "total", len(gone), _bytes([doomed.folder for doomed in gone]))
        console.print(table)
    else:
        say(console, f"nothing in {url} may go")
    say(console, f"kept: {len(garbage.kept)} artifacts that runs need, {_bytes(garbage.kept)}")
    for what, folders in {
        f"kept: younger than {_age(garbage.min_age.total_seconds())}": garbage.young,
        "kept: in quarantine (--quarantine-older-than AGE)": garbage.quarantined,
        "kept: named by a run meanwhile": [doomed.folder for doomed in restored],
    }.items():
        if folders:
            say(console, f"{what}: {len(folders)}, {_bytes(folders)}")
    if garbage.dropped:
        say(console, f"not kept, can be made again: {len(garbage.dropped)} that runs name")
    if garbage.running:
        say(console, f"at work: {', '.join(garbage.running)}")
    if garbage.faults:
        refused = "this would be refused" if is_dry_run else "deleted all the same"
        say(console, f"runs need what is missing or damaged ({refused}):\n{describe(garbage.faults)}")


def print_usage(url: str, usage: Usage, as_json: bool) -> None:
    """What takes up a store."""
    if as_json:
        _print_json({"store": url, "size_bytes": usage.size_bytes, **asdict(usage)})
        return
    console = Console()
    table = _table(f"{url} by kind", "kind", numbers=["number", "bytes", "of no run", "their bytes"])
    for kind in usage.kinds:
        unreached = (kind.unreached_number, decimal(kind.unreached_bytes)) if kind.unreached_number else ()
        _add(table, kind.kind, kind.number, decimal(kind.size_bytes), *unreached)
    _add(table, "total", "", decimal(usage.size_bytes))
    console.print(table)
    extras = {"not kept": "num_dropped", "missing": "num_faults"}
    shown = {name: field for name, field in extras.items() if any(getattr(run, field) for run in usage.runs)}
    table = _table("by run", "run", numbers=["artifacts", "bytes", "its own", "shared", *shown])
    for run in usage.runs:
        sizes = (decimal(size) for size in (run.size_bytes, run.own_bytes, run.shared_bytes))
        _add(table, run.run, run.number, *sizes, *(getattr(run, field) for field in shown.values()))
    console.print(table)


def print_verification(url: str, verification: Verification, as_json: bool) -> None:
    """What is not what was written."""
    if as_json:
        _print_json({"store": url, **asdict(verification)})
        return
    console = Console()
    damages = verification.damages
    if damages:
        table = _table(f"damaged in {url}", "where", "what", "needed by")
        for damage in damages:
            _add(table, damage.place, damage.what, ", ".join(damage.runs))
        console.print(table)
    say(
        console,
        f"{verification.num_artifacts} artifacts, {decimal(verification.size_bytes)}: "
        + (f"faults: {len(damages)}" if damages else "all as they were written"),
    )


def print_copy(url: str, copy: Copy, as_json: bool) -> None:
    """What copying a run did."""
    if as_json:
        _print_json({"store": url, **asdict(copy)})
        return
    console = Console()
    say(console, f"{copy.run} is in {url}, every copy checked by its digests")
    say(console, f"copied: {copy.num_copied} artifacts, {decimal(copy.bytes_copied)}")
    say(console, f"there already: {copy.num_present} artifacts, {decimal(copy.bytes_present)}")
    if copy.num_dropped:
        say(console, f"not kept, can be made again: {copy.num_dropped}")
    if copy.studies:
        say(console, f"copied with it: {', '.join(copy.studies)}")
    for place, why in copy.left.items():
        say(console, f"not copied: {place}: {why}")
    if copy.is_running:
        say(console, "the run is still at work: copy it again for what it makes from now on")


def _table(title: str, *texts: str, numbers: Sequence[str] = ()) -> Table:
    table = new_table(title)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _add(table: Table, *cells: Any) -> None:
    table.add_row(*(plain(str(cell)) for cell in cells))


def _amount(folders: Sequence[StoredFolder]) -> dict[str, int]:
    return {"number": len(folders), "size_bytes": sum(folder.size_bytes for folder in folders)}


def _bytes(folders: Sequence[StoredFolder]) -> str:
    return decimal(_amount(folders)["size_bytes"])


def _age(seconds: float) -> str:
    for unit, length in {"d": 86_400, "h": 3_600, "m": 60}.items():
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201
