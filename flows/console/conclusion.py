"""The last words on a run that has ended: its report and a summary."""

from pathlib import Path

from starpo.flows.console.listing import success_line
from starpo.flows.console.pages import write_report
from starpo.flows.console.terminal import Console, say
from starpo.ragen.store import Store


def conclude(store: Store, run: str, console: Console) -> None:
    """Write the report of a run that has ended, and print a summary."""
    report = write_report(store, run, None)
    for label, value in {
        "run": run,
        "success": success_line(store, run),
        "artifacts": store.url if "://" in store.url else str(Path(store.url).resolve()),
        "report": str(report),
        "more": f"starpo show {run}",
    }.items():
        say(console, f"{label:<10} {value}")
