"""Flow runs whose process has died without reporting it: nobody else would end them in Prefect.

unfinished flow runs of this machine - those of a live process -> Crashed

Prefect's runner reports the death of a flow run's process. If the runner or the server dies with it, or the process was
that of a sub-flow, nobody does.
"""

from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import psutil
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun as Found
from prefect.client.schemas.objects import StateType
from prefect.states import Crashed

from starpo.flows.flow_run import asking, unfinished
from starpo.flows.server import api_url

_STARTING = timedelta(minutes=1)
"""Time that a flow run may be pending before it has a process."""


def crash_abandoned() -> list[str]:
    """Set flow runs to Crashed whose process no longer exists, and return their names, sorted.

    Considered are those of deployments served on this machine, and their sub-flows. A server on another machine may
    know processes of other machines: it is left alone, as are the flow runs of work pools.

    Raises:
        ServerError: If the server does not answer, or fails.
    """
    if urlsplit(api_url()).hostname not in ("127.0.0.1", "localhost", "::1"):
        return []
    alive, crashed = _flow_runs_of_processes(), []
    with asking("to end abandoned runs"), get_client(sync_client=True) as client:
        for run in unfinished():
            owners = {str(run.id), _parent(client, run)} - {None}
            is_ours = run.work_pool_name is None and (run.deployment_id is not None or len(owners) > 1)
            if is_ours and not _is_starting(run) and owners.isdisjoint(alive):
                message = "Its process ended without reporting it; the same settings continue it"
                client.set_flow_run_state(run.id, Crashed(message=message), force=True)
                crashed.append(run.name)
    return sorted(crashed)


def _flow_runs_of_processes() -> set[str]:
    """Return ids of the flow runs that this user's processes work on; a sub-flow's process has that of its parent."""
    flow_run_ids = set()
    for process in psutil.process_iter():
        try:
            flow_run_ids.add(process.environ().get("PREFECT__FLOW_RUN_ID", ""))
        except psutil.Error:  # it has ended, or belongs to another user
            continue
    return flow_run_ids


def _parent(client: SyncPrefectClient, run: Found) -> str | None:
    """Return the id of the flow run that this one is a sub-flow of; None if there is none."""
    if run.parent_task_run_id is None:
        return None
    return str(client.read_task_run(run.parent_task_run_id).flow_run_id)


def _is_starting(run: Found) -> bool:
    if run.state is None or run.state.type != StateType.PENDING:
        return False
    return datetime.now(UTC) - run.state.timestamp < _STARTING
