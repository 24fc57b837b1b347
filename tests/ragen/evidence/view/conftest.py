"""A stored run with hostile texts, and the pages of its store."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from starpo.ragen.evidence.view.app import application
from starpo.ragen.evidence.view.guard import Guard
from starpo.ragen.evidence.view.reading import StoreReader
from starpo.ragen.store import Store
from tests.ragen.evidence.report.conftest import Browser, browser, hostile_texts, stored_run

__all__ = ["Browser", "browser", "hostile_texts", "served", "store", "stored_run"]


@pytest.fixture
def store(stored_run: Store, tmp_path: Path) -> Store:
    """Copy of the stored run, which may be changed."""
    shutil.copytree(stored_run.url, tmp_path / "store")
    return Store(str(tmp_path / "store"))


@pytest.fixture
def served(store: Store) -> Iterator[str]:
    """Address of a server of the store's pages."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = Guard(application(StoreReader(store)), port)
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, ws="none", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()
    listener.close()
