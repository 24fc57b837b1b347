"""What `ragen up` and `ragen down` say: where the server is, and what ended with it."""

from starpo.flows import server
from starpo.flows.console.terminal import Console, say
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import StarPOError


def start_here() -> None:
    """Have the server and the serving process of this state folder running, with the deployments as they are here.

    Raises:
        ServerError: If they do not come up.
    """
    console, state_dir = Console(), Runtime.current().state_dir
    was_serving = server.processes(state_dir)[1].running() is not None
    url = server.start(state_dir, lambda text: say(console, text))
    if was_serving:
        from starpo.flows.console.train import register

        register()
    say(console, f"Prefect: {url.removesuffix('/api')}")
    say(console, "Try: prefect deployment run starpo/sokoban")


def stop_here() -> None:
    """Stop the processes of this state folder, and say which runs end with them."""
    console, state_dir = Console(), Runtime.current().state_dir
    ended = _at_work(state_dir)
    stopped = server.stop(state_dir)
    say(console, f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    if ended:
        say(console, f"ended with it, in mid-run: {', '.join(ended)}")
        say(console, "What they stored is kept: the same `ragen train` again goes on where they were.")


def _at_work(state_dir: str) -> list[str]:
    """Names of the flow runs that the serving process is at work on; of none that nobody can say."""
    if not server.processes(state_dir)[1].num_children():
        return []
    from starpo.flows.console.flow_run import unfinished

    try:
        return sorted({run.name for run in unfinished()})
    except StarPOError:
        return ["a run (the server does not say which)"]
