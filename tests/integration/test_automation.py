"""The shipped Prefect automation, created on a real server as documented: a run that has collapsed is cancelled."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.settings import get_current_settings
from prefect.states import StateType

from starpo.flows.prefect_execution import InPrefect

pytestmark = [
    pytest.mark.integration,
    pytest.mark.thorough,
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.timeout(300),
]
SHIPPED = Path(__file__).parents[2] / "infra/automations/collapsed.yaml"


@flow
def told(status: str, wait_s: float) -> bool:
    """Announce a collapse as a run does, and return whether this flow run is cancelled within `wait_s` seconds."""
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    InPrefect().announce_collapse("mine", 3, status, "success fell")
    deadline = time.monotonic() + wait_s
    with get_client(sync_client=True) as client:
        while time.monotonic() < deadline:
            state = client.read_flow_run(context.flow_run.id).state
            if state is not None and state.type in (StateType.CANCELLING, StateType.CANCELLED):
                return True
            time.sleep(0.2)
    return False


def test_a_collapsed_run_is_cancelled_and_one_that_is_collapsing_is_not() -> None:
    address = get_current_settings().api.url
    create = [sys.executable, "-m", "prefect", "automation", "create", "--from-file", str(SHIPPED)]
    made = subprocess.run(create, env={**os.environ, "PREFECT_API_URL": str(address)}, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert told("collapsed", 60.0)
    assert not told("collapsing", 3.0)
