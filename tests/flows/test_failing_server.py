"""A server that fails at every request, as its database is gone: it is stopped if it is ours and no runs are active."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from uuid import UUID

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from starpo.flows import server
from starpo.flows.console.flow_run import FlowRun
from starpo.flows.server import Process, ServerError, has_lost_its_database, is_healthy


@pytest.fixture
def serving() -> Iterator[Callable[[int], str]]:
    """Start a server that answers requests with one status and health checks with another; returns its URL."""
    started: list[HTTPServer] = []

    def serve(status: int, health: int = 200) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(health)
                self.end_headers()

            def do_POST(self) -> None:
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        started.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=started[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{started[-1].server_port}/api"

    yield serve
    for each in started:
        each.shutdown()
        each.server_close()


@pytest.mark.parametrize(("status", "is_lost"), [(200, False), (404, False), (500, True), (503, True)])
def test_it_is_told_by_a_simple_question(serving: Callable[[int], str], status: int, is_lost: bool) -> None:
    assert has_lost_its_database(serving(status)) is is_lost


@pytest.mark.parametrize(("status", "is_up"), [(200, True), (401, True), (403, True), (404, False), (503, False)])
def test_a_server_that_asks_who_is_asking_is_up(serving: Callable[..., str], status: int, is_up: bool) -> None:
    """Prefect Cloud does so, as no API key is sent with the health check."""
    assert is_healthy(serving(200, health=status)) is is_up


@pytest.mark.parametrize(
    ("api", "pages"),
    [
        ("http://127.0.0.1:4200/api", "http://127.0.0.1:4200"),
        ("https://api.prefect.cloud/api/accounts/a/workspaces/w", "https://app.prefect.cloud/account/a/workspace/w"),
    ],
)
def test_pages_are_where_the_server_has_them(api: str, pages: str) -> None:
    with temporary_settings({PREFECT_API_URL: api}):
        assert FlowRun(UUID(int=0)).page == f"{pages}/runs/flow-run/{UUID(int=0)}"


def test_no_server_has_not_lost_its_database() -> None:
    assert not has_lost_its_database("http://127.0.0.1:9/api")


def test_somebody_elses_server_is_left_alone(
    serving: Callable[[int], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serving(500)
    monkeypatch.setattr(server, "api_url", lambda: url)
    with pytest.raises(ServerError, match=r"fails at every request: its database is gone.* not started from here"):
        server.start(str(tmp_path))


@pytest.mark.parametrize("is_busy", [True, False])
def test_ours_is_stopped_unless_runs_are_at_work(
    serving: Callable[[int], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    url = serving(500)
    ours = Process("server", tmp_path)
    ours.start("sleep", "60")
    monkeypatch.setattr(Process, "num_children", lambda _: int(is_busy))
    try:
        if is_busy:
            with pytest.raises(ServerError, match=r"Runs are active.*`ragen down` stops them"):
                server._stop_failing(url, str(tmp_path))
        else:
            server._stop_failing(url, str(tmp_path))
        assert (ours.running() is not None) is is_busy
    finally:
        ours.stop()
