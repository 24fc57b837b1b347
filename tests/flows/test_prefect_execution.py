"""What a run sends to Prefect's server beside its stages."""

import logging
from typing import Any

import pytest

from starpo.flows import prefect_execution
from starpo.flows.prefect_execution import InPrefect
from starpo.ragen.runs.placement import ModelPlacement


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Artifacts that would be sent."""
    artifacts: list[dict[str, Any]] = []
    monkeypatch.setattr(prefect_execution, "get_run_logger", lambda: logging.getLogger("test"))
    for name in ("create_link_artifact", "create_table_artifact"):
        monkeypatch.setattr(
            prefect_execution, name, lambda content, **more: artifacts.append({"content": content, **more})
        )
    monkeypatch.setattr(prefect_execution, "_take_name", lambda run: None)
    return artifacts


def test_success_is_a_table(sent: list[dict[str, Any]]) -> None:
    panel = {"evaluation/sokoban/success": 0.5, "evaluation/sokoban/success_low": 0.25}
    metrics = {
        1: {"rollout/success_rate": 0.125},
        0: {**panel, "rollout/success_rate": 0.0},
        2: {"reward/return_mean": 1},
    }
    with ModelPlacement() as placement:
        InPrefect(placement).show_success("My.run", "sokoban", metrics)
    [table] = sent
    assert table["key"] == "run-my-run-success"
    assert table["content"] == [
        {"iteration": 0, "training": 0.0, "panel": 0.5, "low": 0.25, "high": None},
        {"iteration": 1, "training": 0.125, "panel": None, "low": None, "high": None},
    ]


@pytest.mark.parametrize("address", ["http://127.0.0.1:4280/run/mine", ""])
def test_page_is_linked_where_served(sent: list[dict[str, Any]], monkeypatch, address: str) -> None:
    monkeypatch.setattr(prefect_execution.view_server, "url", lambda state_dir, store, run: address)
    with ModelPlacement() as placement:
        InPrefect(placement).begin("mine", "file:///store/runs/mine", "/store")
    links = {link["key"]: link["content"] for link in sent}
    assert links == {"run-mine-files": "file:///store/runs/mine"} | ({"run-mine-page": address} if address else {})
