"""What Prefect shows of a run beside its tasks, on a real server."""

import pytest
from prefect import flow
from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext

from starpo.flows.prefect_execution import InPrefect

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(300)]


def test_a_flow_run_takes_the_runs_name_and_links_to_its_files() -> None:
    @flow
    def train() -> str:
        InPrefect().begin("a.Named_run", "file:///store/runs/a.Named_run")
        context = FlowRunContext.get()
        assert context is not None
        assert context.flow_run is not None
        return str(context.flow_run.id)

    flow_run = train()
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(flow_run).name == "a.Named_run"
    link = Artifact.get(key="run-a-named-run-files")
    assert link is not None
    assert "file:///store/runs/a.Named_run" in str(link.data)
