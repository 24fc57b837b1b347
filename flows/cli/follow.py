"""`starpo follow`."""

from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, open_store
from starpo.flows.console.follow import follow_as_json, follow_run
from starpo.flows.console.terminal import Console


def follow(run: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show a run's live progress until it ends; with --json a line for each change."""
    opened = open_store(store)
    opened.runs.get(run)
    if as_json:
        follow_as_json(opened, run)
    else:
        follow_run(opened, run, Console())
