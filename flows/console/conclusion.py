"""The last words on a run that has ended: its report and a summary."""

from pathlib import Path

from starpo.flows.console.listing import success_line
from starpo.flows.console.pages import write_report
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.evidence.run_facts import run_facts
from starpo.ragen.store import Store


def conclude(store: Store, run: str, as_json: bool) -> None:
    """Print a summary of a run that has ended, and write its report, which may fail without hiding the rest."""
    if as_json:
        from starpo.flows.console.documents.training import FinishedRun

        report = write_report(store, run, None)
        print_json(FinishedRun(**run_facts(store, store.runs.get(run)), report=str(report)))
        return
    console = Console()
    for label, value in {
        "run": run,
        "success": success_line(store, run),
        "artifacts": store.url if "://" in store.url else str(Path(store.url).resolve()),
        "more": f"starpo show {run}",
    }.items():
        say(console, f"{label:<10} {value}")
    say(console, f"{'report':<10} {write_report(store, run, None)}")
