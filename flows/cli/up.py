"""`starpo up`."""

from starpo.flows import server
from starpo.flows.console.deployment import register
from starpo.flows.console.terminal import Console, say
from starpo.ragen.config.runtime import Runtime


def up() -> None:
    """Start a local Prefect server and the process that serves the deployments."""
    console, state_dir = Console(), Runtime.current().state_dir
    was_serving = server.processes(state_dir)[1].running() is not None
    server.start(state_dir)
    if was_serving:
        register()
    say(console, f"Prefect: {server.ui_url()}")
    say(console, "Try: prefect deployment run starpo/sokoban")
