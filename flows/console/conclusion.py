"""The last words on a run that has ended: its report and a summary."""

from pathlib import Path

from starpo.flows.console.listing import success_line
from starpo.flows.console.pages import write_report
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.evidence.run_facts import run_facts
from starpo.ragen.store import Store


def conclude(store: Store, run: str, as_json: bool) -> None:
    """Write the report of a run that has ended, and print a summary."""
    report = write_report(store, run, None)
    if as_json:
        from starpo.flows.console.documents.training import FinishedRun

        print_json(FinishedRun(**run_facts(store, store.runs.get(run)), report=str(report)))
        return
    console = Console()
    for label, value in {
        "run": run,
        "success": success_line(store, run),
        "artifacts": store.url if "://" in store.url else str(Path(store.url).resolve()),
        "report": str(report),
        "more": f"starpo show {run}",
    }.items():
        say(console, f"{label:<10} {value}")
