"""`starpo cancel`: requests to Prefect, the state that is stored, and messages if nothing can be cancelled."""

import io
from types import SimpleNamespace
from uuid import uuid4

import pytest
from rich.console import Console

from starpo.flows.cli.cancel import CancelError, cancel_run
from starpo.flows.console.documents.training import Cancellation
from starpo.flows.outcome import Outcome
from starpo.flows.server import ServerGoneError
from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store


class Prefect:
    """Flow runs that have not ended; records which are cancelled, and gives their outcome."""

    def __init__(self, *names: str, served: bool = True, outcome: Outcome | None = None, **parameters: str) -> None:
        self.runs = [
            SimpleNamespace(
                id=uuid4(),
                name=name,
                deployment_id=uuid4() if served else None,
                parameters=parameters,
                parent_task_run_id=None,
            )
            for name in names
        ]
        self.outcome = outcome or Outcome("cancelled", "")
        self.cancelled: list[object] = []

    def unfinished(self, name: str) -> list[SimpleNamespace]:
        return [run for run in self.runs if run.name == name]

    def flow_run(self, identifier: object) -> SimpleNamespace:
        return SimpleNamespace(
            page="http://page", ended=lambda: self.outcome, cancel=lambda: self.cancelled.append(identifier)
        )


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr("starpo.flows.cli.cancel.POLL_S", 0.01)
    monkeypatch.setattr("starpo.flows.cli.cancel._PATIENCE_S", 0.1)
    store = Store(str(tmp_path / "store"))
    store.runs.create("mine", flow="starpo", preset="smoke", config={})
    store.runs.set_state("mine", "running", "update", {"iteration": 3})
    return store


@pytest.fixture
def printed(store, monkeypatch):
    def run(prefect: Prefect, name: str = "mine") -> Cancellation:
        monkeypatch.setattr("starpo.flows.console.deployment.unfinished", prefect.unfinished)
        monkeypatch.setattr("starpo.flows.cli.cancel.FlowRun", prefect.flow_run)
        return cancel_run(store, name, Console(file=io.StringIO(), width=200))

    return run


@pytest.fixture
def _not_at_work(store, monkeypatch):
    monkeypatch.setattr(type(store.runs), "is_running", lambda *_: False)


@pytest.mark.usefixtures("_not_at_work")
def test_cancelled_run_has_cancelled_state(printed, store):
    prefect = Prefect("mine", "other")
    assert printed(prefect) == Cancellation(run="mine", outcome="cancelled", state="cancelled")
    assert prefect.cancelled == [prefect.runs[0].id]
    state = store.runs.state("mine")
    assert (state.status, state.metrics) == ("cancelled", {"iteration": 3})
    assert state.message.startswith("by `starpo cancel`")


@pytest.mark.usefixtures("_not_at_work")
def test_same_name_in_other_store_untouched(printed, store, tmp_path):
    elsewhere = Prefect("mine", store=str(tmp_path / "elsewhere"))
    assert printed(elsewhere) == Cancellation(run="mine", outcome="not running", state="interrupted")
    assert elsewhere.cancelled == []
    here = Prefect("mine", store=store.address)
    assert printed(here).outcome == "cancelled"
    assert len(here.cancelled) == 1


@pytest.mark.usefixtures("_not_at_work")
def test_run_finished_meanwhile_stays_completed(printed, store):
    store.runs.set_state("mine", "completed", "completed")
    assert printed(Prefect("mine", outcome=Outcome("completed", ""))).outcome == "finished before"
    assert store.runs.state("mine").status == "completed"


@pytest.mark.usefixtures("_not_at_work")
def test_complete_run_restarted_stays_complete(printed, store):
    store.runs.set_state("mine", "completed", "completed")
    head = store.runs.state("mine").head
    printed(Prefect("mine"))
    state = store.runs.state("mine")
    assert (state.status, state.head) == ("completed", head)


def test_unstoppable_run_error_names_process(printed, store):
    with store.runs.hold("mine"), pytest.raises(CancelError, match=r"has not within .* on this machine.*starpo up"):
        printed(Prefect("mine"))
    assert store.runs.state("mine").status == "running"


def test_ablation_cell_is_left_to_ablation(printed, store, monkeypatch):
    monkeypatch.setattr("starpo.flows.cli.cancel.parent_name", lambda _: "grid")
    with store.runs.hold("mine"), pytest.raises(CancelError, match="a part of grid, which `starpo cancel grid`"):
        printed(Prefect("mine", served=False))


def test_ended_run_needs_no_server(printed, store, monkeypatch):
    prefect = Prefect()
    prefect.unfinished = lambda _: (_ for _ in ()).throw(ServerGoneError("no answer"))
    store.runs.set_state("mine", "completed", "completed")
    assert printed(prefect) == Cancellation(run="mine", outcome="not running", state="completed")


def test_silent_server_claims_nothing(printed):
    prefect = Prefect()
    prefect.unfinished = lambda _: (_ for _ in ()).throw(ServerGoneError("no answer"))
    with pytest.raises(StoreError, match=r"\nWhether Prefect has .* is not known: no answer$"):
        printed(prefect, "mina")


def test_an_unknown_one_suggests_near_ones(printed):
    with pytest.raises(StoreError, match=r"no run 'mina' .* did you mean mine\?\nPrefect has no unfinished run"):
        printed(Prefect(), "mina")


@pytest.mark.usefixtures("_not_at_work")
def test_ablation_known_only_to_prefect(printed):
    prefect = Prefect("filter-keep")
    assert printed(prefect, "filter-keep") == Cancellation(run="filter-keep", outcome="cancelled", state=None)
    assert len(prefect.cancelled) == 1
