"""Real processes: several that write the same artifact concurrently, and one that is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.store import Facts, Store
from tests.examples import example_turns

KEY = "k" * 32
NUM_WRITERS = 3

WRITER = """
import json, pathlib, sys, time
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts import datasets
from tests.examples import example_turns
from starpo.schemas.manifest import Stage

datasets.MAX_BATCH_ROWS = 50  # so that rows are on disk before the end
url, name, first_group, gate = sys.argv[1:]

def batches():
    yield from example_turns(5, int(first_group)).to_batches()
    pathlib.Path(gate, "ready-" + name).touch()
    while not pathlib.Path(gate, "go").exists():
        time.sleep(0.002)

facts = Facts(key="k" * 32, stage=Stage(name="rollout", version=1), settings={}, inputs={}, seed=None)
manifest = Store(url).put_table("turns", batches(), facts)
print(json.dumps({"content": manifest.content_digest, "manifest": manifest.manifest_digest}))
"""


def start(url: str, name: int, first_group: int, gate: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(name), str(first_group), str(gate)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
    )


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the writers did not get ready"
        time.sleep(0.01)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder


@pytest.mark.ci
@pytest.mark.parametrize("is_same", [True, False])
def test_concurrent_writers_agree_on_one_winner(tmp_path: Path, gate: Path, is_same: bool) -> None:
    """All have written their rows before any may commit; if their contents differ, exactly one of them is stored."""
    url = str(tmp_path / "store")
    first_groups = [0 if is_same else name for name in range(NUM_WRITERS)]
    writers = [start(url, name, first, gate) for name, first in enumerate(first_groups)]
    wait_until(lambda: len(list(gate.glob("ready-*"))) == NUM_WRITERS)
    assert _num_staged(url) == NUM_WRITERS
    assert not Store(url).has("turns", KEY)
    (gate / "go").touch()
    results = []
    for writer in writers:
        out, err = writer.communicate(timeout=60)
        assert writer.returncode == 0, err
        results.append(json.loads(out))
    assert len({result["manifest"] for result in results}) == 1
    store = Store(url)
    assert store.manifest("turns", KEY).manifest_digest == results[0]["manifest"]
    contents = [example_turns(5, first) for first in first_groups]
    assert store.read_table("turns", KEY) in contents
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


@pytest.mark.ci
def test_a_killed_writer_leaves_nothing_visible(tmp_path: Path, gate: Path, work: Facts) -> None:
    url = str(tmp_path / "store")
    writer = start(url, 0, 0, gate)
    wait_until(lambda: list(gate.glob("ready-*")))
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=60)
    assert _num_staged(url) == 1
    store = Store(url)
    assert not store.has("turns", KEY)
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["tmp"]
    assert store.runs.list() == []
    store.put_table("turns", example_turns(5), work)
    assert store.read_table("turns", KEY).equals(example_turns(5))


def _num_staged(url: str) -> int:
    return len(list(Path(url, "tmp").glob("*/part-00000.parquet")))
