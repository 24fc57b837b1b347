"""Deployments on a real server: updated to the current settings; their runs are named, refused and cancelled."""

from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.deployments.runner import RunnerDeployment

from starpo.flows.background import ServerError
from starpo.flows.cli.cancel import CancelError, cancel_run
from starpo.flows.console.terminal import Console
from starpo.flows.deployments import deployments
from starpo.flows.flow_run import FlowRun, unfinished
from starpo.flows.serve import register
from starpo.ragen.store import Store

pytestmark = pytest.mark.timeout(300)
NAME = "starpo/smoke"


@pytest.mark.usefixtures("prefect_server")
def test_changed_deployment_is_registered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    (made,) = [deployed.to_runner() for deployed in deployments() if deployed.full_name == NAME]
    schema = made._parameter_openapi_schema
    old = schema.model_copy(update={"properties": {**schema.properties, "iterations": {"type": "string"}}})
    made._parameter_openapi_schema = old
    made.versioned().apply()
    with pytest.raises(ServerError, match=rf"asked to run {NAME} and refused \(HTTP 4\d\d\): .*iterations") as refused:
        FlowRun.start(NAME, {"iterations": 3}, "mine")  # refused by the outdated schema
    assert len(str(refused.value).splitlines()) == 1

    assert register(NAME)
    with get_client(sync_client=True) as client:
        registered = client.read_deployment_by_name(NAME).parameter_openapi_schema
    assert registered is not None
    assert registered["properties"]["iterations"] == schema.properties["iterations"]

    monkeypatch.setattr(RunnerDeployment, "aapply", lambda *_, **__: pytest.fail("sent again, although unchanged"))
    assert register(NAME)

    begun = FlowRun.start(NAME, {"iterations": 3}, "mine")
    assert [run.id for run in unfinished("mine")] == [begun.id]
    assert str(begun.id) in begun.page
    assert begun.ended() is None
    begun.cancel()
    outcome = begun.ended()
    assert outcome is not None
    assert outcome.status == "cancelled"
    assert unfinished("mine") == []


@pytest.mark.usefixtures("prefect_server")
def test_missing_deployment_is_reported() -> None:
    assert not register("starpo/bandit")


@pytest.mark.usefixtures("prefect_server")
def test_cancel_names_the_flow_above(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.runs.create("cell", flow="starpo", preset="smoke", config={})

    @flow(flow_run_name="cell")
    def cell() -> None:
        with store.runs.hold("cell"), pytest.raises(CancelError, match="a part of grid, which `starpo cancel grid`"):
            cancel_run(store, "cell", Console())

    @flow(flow_run_name="grid")
    def grid() -> None:
        cell()

    grid()
