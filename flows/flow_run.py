"""Flow runs of deployments on the Prefect server: start, query and cancel them.

If the server refuses or fails, the error is one message that says what to do.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterName,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun as Found
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Cancelled, Cancelling, Crashed

from starpo.flows.background import ServerError
from starpo.flows.outcome import Outcome
from starpo.flows.server import ServerBusyError, ServerGoneError, api_url, ui_url

_UNFINISHED = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
_AT_WORK = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_PREFECT_PREFIX = "Flow run encountered an exception: "
_MOST_SHOWN = 500
_STARTING = timedelta(minutes=1)
"""After this time, a flow run has loaded its libraries, and either works on its run or never will."""


@dataclass(frozen=True)
class FlowRun:
    """A flow run on the server.

    Attributes:
        id: Prefect's id of the flow run.
    """

    id: UUID

    @classmethod
    def start(cls, deployment: str, parameters: dict[str, Any], name: str) -> "FlowRun":
        """Start a flow run of a deployment.

        Args:
            deployment: Flow and deployment, such as `starpo/sokoban`.
            parameters: Parameters of the flow.
            name: Name of the flow run.

        Raises:
            ServerError: If the server refuses or fails.
        """
        from prefect.deployments import run_deployment

        with asking(f"to run {deployment}"):
            begun = run_deployment(deployment, parameters=parameters, flow_run_name=name, timeout=0, as_subflow=False)
        return cls(begun.id)  # type: ignore[union-attr]  # Prefect returns a coroutine only inside an event loop

    @property
    def page(self) -> str:
        """URL of its page."""
        return f"{ui_url()}/runs/flow-run/{self.id}"

    def ended(self) -> Outcome | None:
        """Return its final state; None while it is unfinished, or while the server is too busy to answer.

        Raises:
            ServerGoneError: If the server does not answer.
            ServerError: If the server no longer knows the flow run, or fails.
        """
        from prefect.client.orchestration import get_client

        try:
            with asking("for the state of the run"), get_client(sync_client=True) as client:
                return _outcome(client.read_flow_run(self.id))
        except ServerBusyError:
            return None

    def cancel(self) -> None:
        """Cancel it: immediately if it has not started, otherwise through the process that serves it.

        Raises:
            ServerError: If the server refuses or fails.
        """
        from prefect.client.orchestration import get_client

        with asking("to cancel the run"), get_client(sync_client=True) as client:
            state = client.read_flow_run(self.id).state
            has_begun = state is not None and state.type != StateType.SCHEDULED
            client.set_flow_run_state(self.id, Cancelling() if has_begun else Cancelled(), force=not has_begun)


def unfinished(name: str | None = None) -> list[Found]:
    """List unfinished flow runs, newest first: those of a name, or all that are active (scheduled ones excluded).

    Raises:
        ServerError: If the server does not answer, or fails.
    """
    from prefect.client.orchestration import get_client

    wanted = FlowRunFilter(
        name=None if name is None else FlowRunFilterName(any_=[name]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_AT_WORK if name is None else _UNFINISHED)),
    )
    with asking("for the list of runs"), get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=200)


def parent_name(run: Found) -> str | None:
    """Return the name of the flow run that started a sub-flow; None if it is not a sub-flow.

    Raises:
        ServerError: If the server does not answer, or fails.
    """
    from prefect.client.orchestration import get_client

    if run.parent_task_run_id is None:
        return None
    with asking("which flow run started another"), get_client(sync_client=True) as client:
        parent = client.read_task_run(run.parent_task_run_id).flow_run_id
        return None if parent is None else client.read_flow_run(parent).name


def subflow_ended(parent: UUID, names: Collection[str], how: str) -> Outcome | None:
    """Return the final state of a flow run's sub-flow that has one of these names; None without such a sub-flow.

    Args:
        parent: The flow run.
        names: Possible names of the sub-flow.
        how: How its process ended. A sub-flow that is unfinished was killed, and is set to Crashed with this message.

    Raises:
        ServerError: If the server does not answer, or fails.
    """
    from prefect.client.orchestration import get_client

    wanted = FlowRunFilter(
        name=FlowRunFilterName(any_=list(names)),
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[parent]),
    )
    with asking("how a sub-flow ended"), get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=wanted)
        for run in runs:
            if _outcome(run) is None:
                client.set_flow_run_state(run.id, Crashed(message=how), force=True)
    return _outcome(runs[0]) if runs else None


def _outcome(run: Found) -> Outcome | None:
    """Convert the final state of a flow run; None while it is unfinished."""
    if run.state is None or not run.state.is_final():
        return None
    return Outcome(run.state.type.value.lower(), (run.state.message or "").removeprefix(_PREFECT_PREFIX))


def is_starting(name: str) -> bool:
    """Whether a flow run of this name waits for its process, or has just got it; False without a server."""
    try:
        runs = unfinished(name)
    except ServerBusyError:
        return True  # unknown: the caller polls again
    except ServerError:
        return False
    return any(run.start_time is None or datetime.now(UTC) - run.start_time < _STARTING for run in runs)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Convert errors of a request to the server into one message.

    Raises:
        ServerGoneError: If the server does not answer.
        ServerError: If it refuses or fails.
        ServerBusyError: If it does not answer in time.
    """
    address = api_url()
    try:
        yield
    except httpx.TimeoutException as error:
        raise ServerBusyError(
            f"the Prefect server at {address} was asked {what} and is too busy to answer; run the same command again "
            "in a moment"
        ) from error
    except httpx.TransportError as error:
        raise ServerGoneError(f"the Prefect server at {address} does not answer ({error})") from error
    except PrefectHTTPStatusError as error:
        status = error.response.status_code
        if status >= 500:
            raise ServerError(
                f"the Prefect server at {address} was asked {what} and failed (HTTP {status}): its database may be "
                "gone, damaged, or on a full disk. Its log is server.log in the state folder (STARPO_STATE_DIR, var); "
                "`starpo down`, then the same command, restarts it"
            ) from error
        raise ServerError(
            f"the Prefect server at {address} was asked {what} and refused (HTTP {status}): {_detail(error.response)}"
        ) from error


def _detail(response: httpx.Response) -> str:
    """Extract the server's error message, truncated to a few lines."""
    try:
        detail = response.json().get("detail")
    except (ValueError, AttributeError):
        detail = response.text
    text = " ".join(str(detail).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
