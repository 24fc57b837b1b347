"""Benchmarks print their measurements, with threads and load. The machine is shared, so ratios come from one run."""

import os
import socket
from collections.abc import Iterator

import psutil
import pytest

from tests.ragen.conftest import smollm2

__all__ = ["smollm2"]


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[psutil.Process]]:
    """Processes that `starpo up` starts: the Prefect server, the serving process and their children."""
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    from starpo.flows import server

    home = tmp_path_factory.mktemp("server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/api"
    os.environ["PREFECT_HOME"] = str(home / "prefect")
    with temporary_settings({PREFECT_API_URL: url, PREFECT_HOME: home / "prefect"}):
        server.start(str(home))
        try:
            started = [process.running() for process in server.processes(str(home))]
            yield [member for p in started if p for member in (p, *p.children(recursive=True))]
        finally:
            server.stop(str(home))


@pytest.fixture(autouse=True)
def say_the_load() -> None:
    print(f"\nload {psutil.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores")
