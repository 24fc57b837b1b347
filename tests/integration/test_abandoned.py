"""Flow runs whose process is gone, on a real server: they are set to Crashed, and those of live processes are not."""

import os
import subprocess
import sys
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Pending, Running

from starpo.flows.abandoned import crash_abandoned
from starpo.flows.deployments import deployments
from starpo.flows.flow_run import FlowRun

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("prefect_server")]
NAME = "starpo/smoke"


@pytest.fixture
def served() -> None:
    (made,) = [deployed.to_runner() for deployed in deployments() if deployed.full_name == NAME]
    made.apply()


def begun(name: str, state: Any) -> FlowRun:
    run = FlowRun.start(NAME, {}, name)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, state, force=True)
    return run


def status(run: FlowRun) -> str | None:
    outcome = run.ended()
    return None if outcome is None else outcome.status


@pytest.mark.usefixtures("served")
def test_only_run_without_process_is_ended() -> None:
    gone, alive, starting = begun("gone", Running()), begun("alive", Running()), begun("starting", Pending())
    waiting = FlowRun.start(NAME, {}, "waiting")
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE,
        env={**os.environ, "PREFECT__FLOW_RUN_ID": str(alive.id)},
    )  # fmt: skip
    try:
        assert crash_abandoned() == ["gone"]
        assert [status(run) for run in (gone, alive, starting, waiting)] == ["crashed", None, None, None]
        assert crash_abandoned() == []
    finally:
        process.kill()
        process.wait()
    assert crash_abandoned() == ["alive"]


@flow
def cell() -> None:
    """Do nothing."""


@flow
def study() -> None:
    cell()


@pytest.mark.usefixtures("served")
def test_cell_ends_with_dead_study() -> None:
    """A cell has no deployment and, in its process, the id of its study."""
    study()
    with get_client(sync_client=True) as client:
        (run,) = [run for run in client.read_flow_runs() if run.parent_task_run_id is not None]
        client.set_flow_run_state(run.id, Running(), force=True)
    assert crash_abandoned() == [run.name]


def test_scripts_flow_run_is_left_alone() -> None:
    study()
    with get_client(sync_client=True) as client:
        (run, *_) = [run for run in client.read_flow_runs() if run.parent_task_run_id is None and not run.deployment_id]
        client.set_flow_run_state(run.id, Running(), force=True)
    assert crash_abandoned() == []


def test_a_server_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starpo.flows.abandoned.api_url", lambda: "https://prefect.example.org/api")
    assert crash_abandoned() == []
