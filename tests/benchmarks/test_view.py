"""The live pages of long runs: seconds of each answer, and memory of the server.

    pytest -m benchmark tests/benchmarks/test_view.py -s

One iteration of the preset `sokoban` is played (768 trajectories, panels of 256), and stored again and again.
"""

import secrets
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

import starpo
from starpo.ragen.store import Facts, Store

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
LENGTHS = (100, 300)
EVALUATED_EVERY = 10
SETTINGS = {
    "policy.warm_start_steps": 30,
    "policy.demonstration_turns": 2000,
    "evaluation.variants": {},
    "iterations": 1,
}
REPETITIONS = 5


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("view")
    played = starpo.train("sokoban", SETTINGS, store=folder / "played", run="played", quiet=True)
    long = Store(str(folder / "long"))
    for length in LENGTHS:
        lengthen(played.store, long, length)
    return long


def lengthen(played: Store, store: Store, length: int) -> None:
    """Store a run of this many iterations, each with the datasets of the first one under keys of its own."""
    run, record = f"of-{length}", played.runs.get("played")
    store.runs.create(run, flow="starpo", preset="sokoban", config=dict(record.config) | {"iterations": length})
    for iteration in range(length + 1):
        for stage, keys in played.runs.iteration("played", 0).items():
            if stage == "warm_start" and iteration == 0:
                folder = f"checkpoint/{keys['checkpoint']}"
                shutil.copytree(f"{played.url}/{folder}", f"{store.url}/{folder}", dirs_exist_ok=True)
                store.runs.record_stage(run, 0, stage, {"checkpoint": keys["checkpoint"]})
            is_due = iteration % EVALUATED_EVERY == 0 if stage.startswith("evaluate") else iteration < length
            if stage == "warm_start" or not is_due:
                continue
            made = {
                kind: again(played, store, kind, key, iteration) for kind, key in keys.items() if kind != "checkpoint"
            }
            store.runs.record_stage(run, iteration, stage, made)
    store.runs.set_state(run, "completed", "completed", {"seconds": 480.0})


def again(played: Store, store: Store, kind: str, key: str, iteration: int) -> str:
    """Store a dataset under another key, as of this iteration."""
    manifest, table = played.manifest(kind, key), played.read_table(kind, key)
    if kind == "metrics":
        place = table.schema.get_field_index("iteration")
        numbers = pa.array([iteration] * table.num_rows, table.schema.field(place).type)
        table = table.set_column(place, table.schema.field(place), numbers)
    other = secrets.token_hex(len(key) // 2)
    facts = Facts(
        key=other, stage=manifest.stage, settings=manifest.settings, inputs=manifest.inputs, seed=0,
        provenance=manifest.provenance | {"written_at": datetime.now(UTC).isoformat()}, headline=manifest.headline,
    )  # fmt: skip
    store.put_table(kind, table, facts)
    return other


def test_answers_of_long_runs(store: Store, tmp_path: Path) -> None:
    address = tmp_path / "address"
    command = [sys.executable, "-m", "starpo.flows.cli", "view", "--no-browser", "--port", "0", "--store", store.url]
    server = subprocess.Popen([*command, "--address-file", str(address)], stdout=subprocess.DEVNULL)
    try:
        while not address.exists():
            assert server.poll() is None
            time.sleep(0.05)
        url, process = address.read_text().splitlines()[0], psutil.Process(server.pid)

        def measure(name: str, *paths: str) -> None:
            seconds, size = [], 0
            for path in paths:
                begun = time.perf_counter()
                size = len(urllib.request.urlopen(url + path).read())
                seconds.append(time.perf_counter() - begun)
            median, megabytes = statistics.median(seconds), process.memory_info().rss / 2**20
            print(
                f"{name:<28}{seconds[0]:6.2f} s first, {median:.3f} s median, {size / 1e3:7,.0f} kB; {megabytes:.0f} MB"
            )

        measure("runs", *[""] * REPETITIONS)
        for length in LENGTHS:
            run = f"run/of-{length}"
            measure(f"page of {length} iterations", *[run] * REPETITIONS)
            measure("  a new iteration", *[f"{run}/data?since={length - 2}"] * REPETITIONS)
            measure("  status", *[f"{run}/status"] * REPETITIONS)
            measure("  a rollout", *[f"{run}/trajectories?iteration={n}" for n in range(1, 1 + REPETITIONS)])
            evaluated = range(0, REPETITIONS * EVALUATED_EVERY, EVALUATED_EVERY)
            measure("  an evaluation", *[f"{run}/trajectories?iteration={n}&source=sokoban" for n in evaluated])
            measure("  search", *[f"{run}/search?text={text}" for text in ("push", "xyzzy", "left+from", "Right")])
    finally:
        server.terminate()
        server.wait()
