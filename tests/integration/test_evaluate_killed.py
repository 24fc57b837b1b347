"""An evaluation of a server's model that is killed asks only for what is missing, and its result is the same."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.store import Store
from starpo.ragen.store.keeping.integrity import verify_store
from tests.openai_server import Server

NUM_PROMPTS, NUM_TURNS = 320, 3
PROGRAM = f"""
import sys, starpo
from starpo.ragen.runs import kept_shards

kept_shards.KEEP_AFTER_S = 0.0
settings = {{"agent.max_turns": {NUM_TURNS}, "rollout.openai.prompt_price": 0.3, "rollout.openai.response_price": 0.7}}
starpo.evaluate(
    "a-model@" + sys.argv[1], "FrozenLake", settings, num_prompts={NUM_PROMPTS}, store=sys.argv[2], quiet=True
)
"""


def answer(body: dict[str, Any]) -> str:
    """Return an action that depends on the request's seed; every seventh is none."""
    move = ("Left", "Down", "Right", "Up", "Right", "Down", "Fly")[body["seed"] % 7]
    return f"<think>{body['seed']}</think><answer>{move}</answer>"


@pytest.fixture
def server() -> Iterator[Server]:
    pytest.importorskip("openai")
    with Server() as server:
        server.say, server.delay_s = answer, 0.01
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def start(server: Server, store: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "STARPO_WANDB_MODE": "disabled"}
    command = [sys.executable, "-c", PROGRAM, server.url, str(store)]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def seeds(server: Server) -> list[int]:
    """Return the seeds of the requests so far, which are different for every turn of the panel, and forget them."""
    all_seeds, server.requests[:] = [body["seed"] for _, _, _, body, _ in server.requests], []
    return all_seeds


def metrics_of(store: Store, key: str) -> dict[str, float]:
    """Return the metrics but the number of requests that were sent again: a busy machine may lose a connection."""
    rows = store.read_table("metrics", key).to_pylist()
    return {row["name"]: row["value"] for row in rows if not row["name"].endswith("/engine_retries")}


@pytest.mark.thorough
def test_killed_evaluation_asks_for_the_rest(server: Server, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(server, whole).wait(240) == 0
    of_whole = seeds(server)
    assert len(of_whole) == len(set(of_whole))

    process, until = start(server, killed), time.monotonic() + 120
    while len(list(killed.glob("shards/*/manifest.json"))) < 3 and time.monotonic() < until:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    num_before = len(seeds(server))
    assert verify_store(Store(str(killed))._location).damages == []

    process = start(server, killed)
    _, log = process.communicate(timeout=240)
    assert process.returncode == 0, log
    of_rest = seeds(server)
    store, undisturbed = Store(str(killed)), Store(str(whole))
    (key,) = store._location.names("episodes")
    num_recalled = store.manifest("episodes", key).provenance["recalled_episodes"]
    assert f"had finished {num_recalled} of {NUM_PROMPTS} episodes" in log
    asked_again = {str(seed) for seed in of_rest}  # twice, if the server read one of the killed process's only later
    turns = undisturbed.read_table("episode_turns", key).to_pylist()
    missing = {row["trajectory_id"] for row in turns if row["think"] in asked_again}
    assert num_recalled > NUM_PROMPTS // 4
    assert len(missing) == NUM_PROMPTS - num_recalled
    assert sorted(asked_again) == sorted(row["think"] for row in turns if row["trajectory_id"] in missing)
    assert num_before + len(of_rest) - len(of_whole) <= 4 * 64 * NUM_TURNS  # what was in play is asked for again
    for kind in ("episode_turns", "episodes"):
        assert store.read_table(kind, key).to_pylist() == undisturbed.read_table(kind, key).to_pylist()
        assert store.manifest(kind, key).content_digest == undisturbed.manifest(kind, key).content_digest
    assert metrics_of(store, key) == metrics_of(undisturbed, key)
    assert store._location.names("shards") == []
