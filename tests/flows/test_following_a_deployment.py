"""A command that follows a flow run survives a busy server, and reports a server that is gone."""

import time
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import httpx
import pytest
from prefect.exceptions import PrefectHTTPStatusError
from rich.console import Console

from starpo.flows.background import ServerError
from starpo.flows.console.deployment import follow_deployment, start_deployment
from starpo.flows.console.follow import RunFailedError
from starpo.flows.console.second_witness import SecondWitness
from starpo.flows.outcome import Outcome
from starpo.flows.server import ServerGoneError
from starpo.ragen.store import Store


@pytest.fixture
def ended(monkeypatch):
    monkeypatch.setattr("starpo.flows.flow_run.api_url", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr("starpo.flows.console.deployment.register", lambda _: None)
    monkeypatch.setattr("starpo.flows.server.start", lambda *_: "http://127.0.0.1:1/api")
    monkeypatch.setattr("prefect.deployments.run_deployment", lambda *_, **__: SimpleNamespace(id=uuid4()))
    return start_deployment("starpo/smoke", {}, "mine", Console())


class Client:
    def __init__(self, error):
        self.error = error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def read_flow_run(self, _):
        raise self.error


@pytest.fixture
def read_fails_with(monkeypatch):
    return lambda error: monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: Client(error))


def test_a_busy_server_is_asked_again(ended, read_fails_with):
    read_fails_with(httpx.ReadTimeout("nothing for 60 s"))
    assert ended() is None


@pytest.fixture
def without_server(monkeypatch, tmp_path):
    def gone():
        raise ServerGoneError("the Prefect server at http://127.0.0.1:1/api no longer answers")

    monkeypatch.setattr("starpo.flows.console.deployment.start_deployment", lambda *_: gone)
    store = Store(str(tmp_path / "store"))
    store.runs.create("mine", flow="starpo", preset="smoke", config={})
    return store


def test_run_ended_with_server_not_continuing(without_server):
    without_server.runs.set_state("mine", "running")
    with without_server.runs.hold("mine"):
        pass  # its process has ended
    without_server.runs.set_state("mine", "cancelled", "from outside")
    with pytest.raises(
        ServerError, match=r"Run mine has ended too.* kept: the same command starts the server"
    ) as raised:
        follow_deployment("starpo/smoke", {}, without_server, "mine", Console())
    assert "still running without" not in str(raised.value)


def test_active_run_continues_without_server(without_server):
    with (
        without_server.runs.hold("mine"),
        pytest.raises(ServerError, match=r"mine is still running without it: `starpo follow mine`") as raised,
    ):
        follow_deployment("starpo/smoke", {}, without_server, "mine", Console())
    assert "\n" not in str(raised.value)


def test_gone_server_differs_from_busy_one(ended, read_fails_with):
    read_fails_with(httpx.ConnectError("[Errno 111] Connection refused"))
    with pytest.raises(ServerGoneError, match=r"does not answer \(\[Errno 111\]"):
        ended()


@pytest.mark.parametrize(
    ("status", "detail", "message"),
    [
        (500, "Internal Server Error", r"for the state of the run and failed \(HTTP 500\): its database may be gone"),
        (409, "x" * 10_000, r"refused \(HTTP 409\): x{500}\.\.\.$"),
    ],
)
def test_server_answer_is_one_line(ended, read_fails_with, status, detail, message):
    answer = httpx.Response(status, json={"detail": detail}, request=httpx.Request("GET", "http://127.0.0.1:1"))
    read_fails_with(PrefectHTTPStatusError("no", request=answer.request, response=answer))
    with pytest.raises(ServerError, match=message) as raised:
        ended()
    assert "\n" not in str(raised.value)


def test_ctrl_c_explains_following_and_stopping(monkeypatch, tmp_path, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("starpo.flows.console.deployment.start_deployment", lambda *_: interrupted)
    with pytest.raises(SystemExit) as ended:
        follow_deployment("starpo/smoke", {"store": "s"}, Store(str(tmp_path / "s")), "mine", Console())
    assert ended.value.code == 130
    output = capsys.readouterr().out
    assert "run mine continues" in output
    assert "starpo follow mine --store s" in output
    assert "starpo cancel mine --store s" in output


@pytest.mark.parametrize(
    ("here", "served", "named", "given"),
    [
        ("s3://here", {"STARPO_STORE": "s3://there"}, {}, {"store": "s3://here"}),
        ("here", {"STARPO_STORE": "/other/here"}, {}, {"store": "/folder/here"}),
        ("", {"STARPO_STORE": "/other/var/store"}, {}, {"store": "/folder/var/store"}),
        ("here", {"STARPO_STORE": "/folder/here"}, {}, {}),
        ("here", None, {}, {}),
        ("here", {"STARPO_STORE": "/folder/here"}, {"store": "mine"}, {"store": "/folder/mine"}),
    ],
)
def test_run_writes_to_configured_store(monkeypatch, tmp_path, here, served, named, given):
    started = []
    monkeypatch.chdir(tmp_path)
    served, given = (
        facts and {name: value.replace("/folder", str(tmp_path)) for name, value in facts.items()}
        for facts in (served, given)
    )
    if here:
        monkeypatch.setenv("STARPO_STORE", here)
    else:
        monkeypatch.delenv("STARPO_STORE", raising=False)
    monkeypatch.setattr("starpo.flows.console.deployment.register", lambda _: None)
    monkeypatch.setattr("starpo.flows.server.start", lambda *_: "http://127.0.0.1:1/api")
    monkeypatch.setattr("starpo.flows.server.served_environment", lambda *_: served)
    monkeypatch.setattr(
        "prefect.deployments.run_deployment",
        lambda _, parameters, **__: started.append(parameters) or SimpleNamespace(id=uuid4()),
    )
    start_deployment("starpo/smoke", named, "mine", Console())
    assert started == [given]


def test_run_in_other_store_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr("starpo.flows.console.deployment.start_deployment", lambda *_: lambda: Outcome("completed", ""))
    with pytest.raises(ServerError, match=r"'mine' is not in .*store: another process .*starpo down.*another port"):
        follow_deployment("starpo/smoke", {}, Store(str(tmp_path / "store")), "mine", Console())


@pytest.fixture
def deaf_server(monkeypatch, tmp_path):
    """Store of a Prefect server for which the flow run is unfinished for ever; its run works at a poll."""
    store = Store(str(tmp_path / "store"))
    store.runs.create("mine", flow="starpo", preset="smoke", config={})
    store.runs.set_state("mine", "failed", "earlier")
    ends: list[tuple[str, str]] = []

    def ended():
        if ends:
            with store.runs.hold("mine"):
                store.runs.set_state("mine", *ends.pop())

    monkeypatch.setattr("starpo.flows.console.deployment.start_deployment", lambda *_: ended)
    monkeypatch.setattr("starpo.flows.console.second_witness.SILENCE_S", 0.2)
    monkeypatch.setattr("starpo.flows.console.follow.POLL_S", 0.05)
    monkeypatch.setattr("starpo.ragen.store.records.runs.STALE_AFTER", timedelta(seconds=0.5))
    return store, ends


def test_unreported_completion_read_from_record(deaf_server, capsys):
    store, ends = deaf_server
    ends.append(("completed", "completed"))
    assert follow_deployment("starpo/smoke", {}, store, "mine", Console(width=1000)) == "mine"
    assert "This is what the store says; Prefect, which was waited for, still" in capsys.readouterr().out


@pytest.mark.ci
@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        ("failed", "ValueError: no", "mine ended as failed: ValueError: no. This is what"),
        ("running", "iteration 3", "mine ended as interrupted: its process has ended, at 'iteration 3'. This is what"),
    ],
)
def test_unreported_failure_is_an_error(deaf_server, status, message, reason):
    store, ends = deaf_server
    ends.append((status, message))
    with pytest.raises(RunFailedError, match=reason):
        follow_deployment("starpo/smoke", {}, store, "mine", Console())


def test_earlier_or_active_state_ends_nothing(deaf_server):
    store, _ = deaf_server
    witness = SecondWitness(store.runs, store.runs.state("mine"))
    with store.runs.hold("mine"):
        working = SecondWitness(store.runs, None)
        for _ in range(2):
            assert witness.outcome("mine") is None
            assert working.outcome("mine") is None
            time.sleep(0.25)
    assert witness.outcome("mine") is None
    assert working.outcome("mine") is None  # it has just ended
