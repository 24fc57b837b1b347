"""Servers at other addresses: whether one is up, and where its pages are."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from uuid import UUID

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from starpo.flows.flow_run import FlowRun
from starpo.flows.server import is_healthy


@pytest.fixture
def serving() -> Iterator[Callable[[int], str]]:
    """Start a server that answers with this status; returns its URL."""
    started: list[HTTPServer] = []

    def serve(status: int) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
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


@pytest.mark.ci
@pytest.mark.parametrize(("status", "is_up"), [(200, True), (401, True), (403, True), (404, False), (503, False)])
def test_server_demanding_credentials_is_up(serving: Callable[[int], str], status: int, is_up: bool) -> None:
    """Prefect Cloud does so, as no API key is sent with the health check."""
    assert is_healthy(serving(status)) is is_up


@pytest.mark.parametrize(
    ("api", "pages"),
    [
        ("http://127.0.0.1:4200/api", "http://127.0.0.1:4200"),
        ("https://api.prefect.cloud/api/accounts/a/workspaces/w", "https://app.prefect.cloud/account/a/workspace/w"),
    ],
)
def test_pages_are_at_server_address(api: str, pages: str) -> None:
    with temporary_settings({PREFECT_API_URL: api}):
        assert FlowRun(UUID(int=0)).page == f"{pages}/runs/flow-run/{UUID(int=0)}"
