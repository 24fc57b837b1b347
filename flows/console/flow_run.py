"""A run of a deployment on the Prefect server: start it, ask how it stands, have it cancelled.

Whatever the server refuses, or fails at, is one message with what to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterName,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun as Found
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Cancelled, Cancelling

from starpo.flows.console.follow import Outcome
from starpo.flows.server import ServerBusyError, ServerError, ServerGoneError, api_url, ui_url

_UNFINISHED = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
_AT_WORK = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_PREFECT_PREFIX = "Flow run encountered an exception: "
_MOST_SHOWN = 500
_STARTING = timedelta(minutes=1)
"""A flow run that began so long ago has loaded its libraries, and is at work on its run or never will be."""


@dataclass(frozen=True)
class FlowRun:
    """A flow run on the server.

    Attributes:
        id: Prefect's.
    """

    id: UUID

    @classmethod
    def start(cls, deployment: str, parameters: dict[str, Any], name: str) -> "FlowRun":
        """Have a deployment run.

        Args:
            deployment: Flow and deployment, such as `starpo/sokoban`.
            parameters: Of the flow.
            name: What Prefect shall call it.

        Raises:
            ServerError: If the server refuses or fails.
        """
        from prefect.deployments import run_deployment

        with asking(f"to run {deployment}"):
            begun = run_deployment(deployment, parameters=parameters, flow_run_name=name, timeout=0, as_subflow=False)
        return cls(begun.id)  # type: ignore[union-attr]  # Prefect returns a coroutine only inside an event loop

    @property
    def page(self) -> str:
        """Address of its page."""
        return f"{ui_url()}/runs/flow-run/{self.id}"

    def ended(self) -> Outcome | None:
        """Prefect's final state; None while it goes on, or while the server is too busy to say.

        Raises:
            ServerGoneError: If there is no server any more.
            ServerError: If it does not know the flow run any more, or fails.
        """
        from prefect.client.orchestration import get_client

        try:
            with asking("for the state of the run"), get_client(sync_client=True) as client:
                state = client.read_flow_run(self.id).state
        except ServerBusyError:
            return None
        if state is None or not state.is_final():
            return None
        return Outcome(state.type.value.lower(), (state.message or "").removeprefix(_PREFECT_PREFIX))

    def cancel(self) -> None:
        """Have it ended; one that has not begun is ended at once, another by the process that serves it.

        Raises:
            ServerError: If the server refuses or fails.
        """
        from prefect.client.orchestration import get_client

        with asking("to cancel the run"), get_client(sync_client=True) as client:
            state = client.read_flow_run(self.id).state
            has_begun = state is not None and state.type != StateType.SCHEDULED
            client.set_flow_run_state(self.id, Cancelling() if has_begun else Cancelled(), force=not has_begun)


def unfinished(name: str | None = None) -> list[Found]:
    """Flow runs that have not ended, newest first; those of a name, or all that are at work.

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


def is_starting(name: str) -> bool:
    """Is there a flow run of this name that waits for its process, or got it a moment ago? Not without a server."""
    try:
        found = unfinished(name)
    except ServerBusyError:
        return True  # nothing is known: whoever waits asks again
    except ServerError:
        return False
    return any(run.start_time is None or datetime.now(UTC) - run.start_time < _STARTING for run in found)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn what a request to the server can end in into one message.

    Raises:
        ServerGoneError: If it does not answer.
        ServerError: If it refuses, or fails.
        ServerBusyError: If it does not in time.
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
        raise ServerGoneError(f"the Prefect server at {address} no longer answers ({error})") from error
    except PrefectHTTPStatusError as error:
        status = error.response.status_code
        if status >= 500:
            raise ServerError(
                f"the Prefect server at {address} was asked {what} and failed (HTTP {status}): its database may be "
                "gone, damaged, or on a full disk. Its log is server.log in the state folder (RAGEN_STATE_DIR, var); "
                "`ragen down`, then the same command, restarts it"
            ) from error
        raise ServerError(
            f"the Prefect server at {address} was asked {what} and refused (HTTP {status}): {_detail(error.response)}"
        ) from error


def _detail(response: httpx.Response) -> str:
    """What the server says, at most a few lines of it."""
    try:
        said = response.json().get("detail")
    except (ValueError, AttributeError):
        said = response.text
    text = " ".join(str(said).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
