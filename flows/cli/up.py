"""`starpo up`."""

from starpo.flows import server, view_server
from starpo.flows.console.deployment import register
from starpo.flows.console.terminal import Console, say
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.store import Store


def up() -> None:
    """Start a local Prefect server, the process that serves the deployments, and the live pages of runs."""
    console, state_dir = Console(), Runtime.current().state_dir
    was_serving = server.processes(state_dir)[1].running() is not None
    store = Store(Runtime.current().store).address
    with console.status(server.STARTING):
        server.start(state_dir)
    if was_serving:
        register()
    say(console, f"Prefect: {server.ui_url()}")
    say(console, f"Runs:    {view_server.url(state_dir, store) or 'starpo view'}")
    say(console, "Try: prefect deployment run starpo/sokoban")
