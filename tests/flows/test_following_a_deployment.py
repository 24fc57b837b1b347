"""A command that follows a flow run survives a server that is busy, and says so when there is none."""

from types import SimpleNamespace
from uuid import uuid4

import httpx
import pytest
from rich.console import Console

from flows.console.follow import Outcome
from flows.console.train import follow_deployment, start_deployment
from flows.server import ServerError
from ragen.store import Store


@pytest.fixture
def ended(monkeypatch):
    monkeypatch.setattr("flows.server.api_url", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr("flows.server.start", lambda _: "http://127.0.0.1:1/api")
    monkeypatch.setattr("prefect.deployments.run_deployment", lambda *_, **__: SimpleNamespace(id=uuid4()))
    return start_deployment("starpo/smoke", {}, Console())


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


def test_no_server_is_one_message_that_says_what_to_do(ended, read_fails_with):
    read_fails_with(httpx.ConnectError("[Errno 111] Connection refused"))
    with pytest.raises(ServerError, match=r"does not answer any more.*ragen up") as raised:
        ended()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("here", "served", "named", "given"),
    [
        ("here", {"RAGEN_STORE": "there"}, {}, {"store": "here"}),
        ("here", {}, {}, {"store": "here"}),
        ("", {"RAGEN_STORE": "there"}, {}, {"store": "var/store"}),
        ("here", {"RAGEN_STORE": "here"}, {}, {}),
        ("here", None, {}, {}),
        ("here", {"RAGEN_STORE": "there"}, {"store": "elsewhere"}, {"store": "elsewhere"}),
    ],
)
def test_a_run_writes_to_the_store_configured_here_whatever_the_serving_process_has(
    monkeypatch, here, served, named, given
):
    started = []
    if here:
        monkeypatch.setenv("RAGEN_STORE", here)
    else:
        monkeypatch.delenv("RAGEN_STORE", raising=False)
    monkeypatch.setattr("flows.server.start", lambda _: "http://127.0.0.1:1/api")
    monkeypatch.setattr("flows.server.served_environment", lambda *_: served)
    monkeypatch.setattr(
        "prefect.deployments.run_deployment",
        lambda _, parameters, **__: started.append(parameters) or SimpleNamespace(id=uuid4()),
    )
    start_deployment("starpo/smoke", named, Console())
    assert started == [given]


def test_a_run_that_another_process_took_to_its_own_store_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr("flows.console.train.start_deployment", lambda *_: lambda: Outcome("completed", ""))
    with pytest.raises(ServerError, match=r"'mine' is not in .*store: another process .*ragen down.*another port"):
        follow_deployment("starpo/smoke", {}, Store(str(tmp_path / "store")), "mine", Console())
