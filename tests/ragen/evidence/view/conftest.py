"""A stored run with hostile texts, and the pages of its store."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import uvicorn

from starpo.ragen.agents.evaluation.episodes import fold_episodes
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.evidence.view.app import application
from starpo.ragen.evidence.view.guard import Guard
from starpo.ragen.evidence.view.reading import StoreReader
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.ragen.evidence.report.conftest import SETTINGS, Browser, browser, hostile_texts, play_turns, stored_run

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


def num_points(place: str) -> str:
    """Script for the number of points that the curves at a place have."""
    paths = f"[...document.querySelectorAll('{place} path.point')]"
    return f"{paths}.map((path) => path.getAttribute('d')).join('').split('M').length - 1"


def panel_episodes(*seeds: int) -> pa.Table:
    """Episodes of a panel, the first prompt's before the others'; what is answered depends on the order."""
    panel = tuple((f"p{prompt:04d}", derive_seed(99, "environment", 0, seed)) for prompt, seed in enumerate(seeds))
    return fold_episodes(play_turns(panel, 1), "sokoban", 0.5)


def store_evaluation(store: Store, run: str, iteration: int, episodes: pa.Table) -> str:
    """Store an evaluation of a run, which is created if there is none of that name, and return its key."""
    if store.runs.find(run) is None:
        store.runs.create(run, flow="starpo", preset="mine", config=store.runs.get("hostile").config)
    stage = Stage(name="evaluate:sokoban", version=1)
    settings = {"environment": SETTINGS.model_dump(mode="json"), "run": run, "iteration": iteration}
    key = stage_key(stage, settings, {}, 0)
    facts = Facts(key=key, stage=stage, settings=settings, inputs={}, seed=0, provenance={}, headline=None)
    store.put_table("episodes", episodes, facts)
    store.runs.record_stage(run, iteration, "evaluate:sokoban", {"episodes": key})
    return key
