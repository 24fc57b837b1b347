"""`starpo follow`."""

from starpo.flows.cli.options import RunArgument, StoreOption, open_store
from starpo.flows.console.follow import follow_run
from starpo.flows.console.terminal import Console


def follow(run: RunArgument, store: StoreOption = None) -> None:
    """Show a run's live progress until it ends."""
    opened = open_store(store)
    opened.runs.get(run)
    follow_run(opened, run, Console())
