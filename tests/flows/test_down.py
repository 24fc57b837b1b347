"""`starpo down`: the runs that it stops."""

from types import SimpleNamespace
from uuid import uuid4

import pytest

from starpo.flows.cli.down import down
from tests.flows.documents import check


def test_work_pool_runs_continue_unnamed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        SimpleNamespace(name="served", deployment_id=uuid4(), work_pool_name=None),
        SimpleNamespace(name="elsewhere", deployment_id=uuid4(), work_pool_name="starpo"),
        SimpleNamespace(name="cell-of-elsewhere", deployment_id=None, work_pool_name=None),
    ]
    monkeypatch.setattr("starpo.flows.cli.down.unfinished", lambda: runs)
    monkeypatch.setattr("starpo.flows.cli.down.crash_abandoned", list)
    monkeypatch.setattr("starpo.flows.background.Process.num_children", lambda _: 1)
    monkeypatch.setattr("starpo.flows.server.stop", lambda _: ["serve", "server"])
    down()
    assert "active runs stopped: served\n" in capsys.readouterr().out
    down(as_json=True)
    assert check("down", capsys.readouterr().out) == {"stopped": ["serve", "server"], "runs": ["served"]}
