"""Real servers for the tests that need one: on loopback, on a free port, started and stopped here."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO

import pytest

_MOTO = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


@contextmanager
def _s3_server(code: str = _MOTO, output: IO[str] | int = subprocess.DEVNULL) -> Iterator[str]:
    """moto's server, or another that this code serves on the port in its first argument; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=output, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, "moto's server ended at once"
                assert time.monotonic() < deadline, "moto's server did not answer within a minute"
                time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=10)


@pytest.fixture(scope="session")
def s3_server() -> Callable[..., AbstractContextManager[str]]:
    """`with s3_server() as url`."""
    return _s3_server


@pytest.fixture(scope="module")
def endpoint(s3_server: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """Address of moto's server, which knows no bucket yet."""
    with s3_server() as url:
        yield url


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A Prefect server that this process talks to."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield
