"""Following a training run, from its deployment to its report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starpo.flows.console.deployment import follow_deployment
from starpo.flows.console.listing import success_line
from starpo.flows.console.pages import write_report
from starpo.flows.console.terminal import Console, say
from starpo.ragen.store import Store


def follow_training(
    deployment: str,
    parameters: dict[str, Any],
    store: Store,
    run: str,
    console: Console,
    written: Mapping[str, str],
) -> None:
    """Run a deployment of the flow `starpo`, follow it to its end, write the report, and print a summary.

    Arguments and errors are those of `follow_deployment`.
    """
    run = follow_deployment(deployment, parameters, store, run, console, written)
    report = write_report(store, run, None)
    for label, value in {
        "run": run,
        "success": success_line(store, run),
        "artifacts": store.url if "://" in store.url else str(Path(store.url).resolve()),
        "report": str(report),
        "more": f"ragen show {run}",
    }.items():
        say(console, f"{label:<10} {value}")
