"""`starpo down`."""

from starpo.flows import server
from starpo.flows.abandoned import crash_abandoned
from starpo.flows.cli.options import JsonOption
from starpo.flows.console.documents.training import Stopped
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.flow_run import unfinished
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import StarPOError


def down(as_json: JsonOption = False) -> None:
    """Stop what `up` started, including active runs; what they stored is kept."""
    console, state_dir = Console(), Runtime.current().state_dir
    ended = _at_work(state_dir)
    stopped = server.stop(state_dir)
    if as_json:
        print_json(Stopped(stopped=stopped, runs=ended))
        return
    say(console, f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    if ended:
        say(console, f"active runs stopped: {', '.join(ended)}")
        say(console, "What they stored is kept: the same `starpo train` continues them.")


def _at_work(state_dir: str) -> list[str]:
    """Return the names of the flow runs that the serving process executes, without those of a work pool's workers."""
    if not server.processes(state_dir)[1].num_children():
        return []
    try:
        crash_abandoned()
        return sorted({run.name for run in unfinished() if run.deployment_id and run.work_pool_name is None})
    except StarPOError:
        return ["a run (the server does not say which)"]
