"""Whether Prefect is about to start a run, on a real server; if so, `starpo follow` waits for the run."""

from uuid import uuid4

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Completed, Running, Scheduled

from starpo.flows import flow_run
from starpo.flows.flow_run import is_starting

pytestmark = pytest.mark.usefixtures("prefect_server")


@flow
def nothing() -> None:
    pass


def test_run_is_starting_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"mine-{uuid4()}"
    with get_client(sync_client=True) as client:
        assert not is_starting(name)
        begun = client.create_flow_run(nothing, name=name, state=Scheduled())
        assert is_starting(name)
        client.set_flow_run_state(begun.id, Running(), force=True)
        assert is_starting(name)
        with monkeypatch.context() as later:
            later.setattr(flow_run, "_STARTING", flow_run._STARTING * 0)
            assert not is_starting(name)
        client.set_flow_run_state(begun.id, Completed(), force=True)
        assert not is_starting(name)
