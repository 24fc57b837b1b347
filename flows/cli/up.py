"""`starpo up`."""

from starpo.flows import server, view_server
from starpo.flows.cli.options import JsonOption
from starpo.flows.console.deployment import register
from starpo.flows.console.documents.training import ServedAddresses
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.store import Store


def up(as_json: JsonOption = False) -> None:
    """Start a local Prefect server, the process that serves the deployments, and the live pages of runs."""
    console, state_dir = Console(stderr=as_json), Runtime.current().state_dir
    was_serving = server.processes(state_dir)[1].running() is not None
    store = Store(Runtime.current().store).address
    with console.status(server.STARTING):
        server.start(state_dir, lambda line: say(console, line))
    if was_serving:
        register()
    served = ServedAddresses(prefect=server.ui_url(), runs=view_server.url(state_dir, store))
    if as_json:
        print_json(served)
        return
    say(console, f"Prefect: {served.prefect}")
    say(console, f"Runs:    {served.runs or 'starpo view'}")
    say(console, "Try: prefect deployment run starpo/sokoban")
