"""The live pages of long runs, on disk and on object storage, and of many runs: seconds and processor time of each
answer, and memory of the server.

    pytest -m benchmark tests/benchmarks/test_view.py -s

One iteration of the preset `sokoban` is played (768 trajectories, panels of 256), and stored again and again.
"""

import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType

import boto3
import psutil
import pyarrow as pa
import pytest

import starpo
from starpo.ragen.store import Facts, Store
from tests.integration.conftest import ceph

__all__ = ["ceph"]
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
NUM_RUNS = 10_000
Measure = Callable[..., bytes]


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
            keys_again = {
                kind: again(played, store, kind, key, iteration) for kind, key in keys.items() if kind != "checkpoint"
            }
            store.runs.record_stage(run, iteration, stage, keys_again)
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


@contextmanager
def served(
    store: str, folder: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, psutil.Process]]:
    """Serve a store, and yield the address and the server."""
    address = folder / "address"
    command = [sys.executable, "-m", "starpo.flows.cli", "view", "--no-browser", "--port", "0", "--store", store]
    server = subprocess.Popen(
        [*command, "--address-file", str(address)], stdout=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    try:
        while not address.exists():
            assert server.poll() is None
            time.sleep(0.05)
        yield address.read_text().splitlines()[0], psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


@contextmanager
def serving(store: str, folder: Path, environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[Measure]:
    """Serve a store, and yield what measures answers: of a name and addresses."""
    with served(store, folder, environment) as (url, process):

        def spent() -> float:
            return sum(process.cpu_times()[:2])

        def measure(name: str, *paths: str) -> bytes:
            seconds, work, answer = [], [], b""
            for path in paths:
                begun, before = time.perf_counter(), spent()
                answer = urllib.request.urlopen(url + path).read()
                seconds.append(time.perf_counter() - begun)
                work.append(spent() - before)
            print(
                f"{name:<28}{seconds[0]:6.2f} s first ({work[0]:.2f} s of processor), "
                f"{statistics.median(seconds):.3f} s median ({statistics.median(work):.3f}), "
                f"{len(answer) / 1e3:7,.0f} kB; {process.memory_info().rss / 2**20:.0f} MB"
            )
            return answer

        yield measure


def measure_run(measure: Measure, length: int) -> None:
    run = f"run/of-{length}"
    evaluated = range(0, REPETITIONS * EVALUATED_EVERY, EVALUATED_EVERY)
    measure(f"page of {length} iterations", *[run] * REPETITIONS)
    measure("  a new iteration", *[f"{run}/data?since={length - 2}"] * REPETITIONS)
    measure("  status", *[f"{run}/status"] * REPETITIONS)
    measure("  a rollout", *[f"{run}/trajectories?iteration={n}" for n in range(1, 1 + REPETITIONS)])
    measure("  an evaluation", *[f"{run}/trajectories?iteration={n}&source=sokoban" for n in evaluated])
    measure("  search", *[f"{run}/search?text={text}" for text in ("push", "xyzzy", "left+from", "Right")])


def test_answers_of_long_runs(store: Store, tmp_path: Path) -> None:
    with serving(store.url, tmp_path) as measure:
        measure("runs", *[""] * REPETITIONS)
        for length in LENGTHS:
            measure_run(measure, length)


def test_answers_from_object_storage(store: Store, tmp_path: Path, ceph: dict[str, str]) -> None:
    """Ceph's gateway, in memory, on the same cores; `python infra/s3/ceph.py install` installs it."""
    account = ceph | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    secret = {name.lower(): ceph[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    client = boto3.client("s3", endpoint_url=ceph["AWS_ENDPOINT_URL"], region_name="us-east-1", **secret)
    client.create_bucket(Bucket="benchmark")
    for file in Path(store.url).rglob("*"):
        if file.is_file():
            client.put_object(Bucket="benchmark", Key=f"s/{file.relative_to(store.url)}", Body=file.read_bytes())
    with serving("s3://benchmark/s", tmp_path, account) as measure:
        measure_run(measure, LENGTHS[0])
    (tmp_path / "address").unlink()
    with serving("s3://benchmark/s", tmp_path, account) as measure:
        measure("page after another start", f"run/of-{LENGTHS[0]}")


def test_list_of_many_runs(store: Store, tmp_path: Path) -> None:
    many = Store(str(tmp_path / "many"))
    config = dict(store.runs.get(f"of-{LENGTHS[0]}").config)
    many.runs.create("run-0", flow="starpo", preset="sokoban", config=config | {"iterations": 10})
    for iteration, stages in islice(store.runs.iterations(f"of-{LENGTHS[0]}").items(), 10):
        for stage, keys in stages.items():
            many.runs.record_stage("run-0", iteration, stage, keys)
            if key := keys.get("episodes"):
                shutil.copytree(f"{store.url}/episodes/{key}", f"{many.url}/episodes/{key}", dirs_exist_ok=True)
    many.runs.set_state("run-0", "completed", "completed", {"seconds": 480.0})
    record = json.loads(Path(many.url, "runs/run-0/run.json").read_text())
    for number in range(1, NUM_RUNS):
        folder = Path(many.url, f"runs/run-{number}")
        shutil.copytree(f"{many.url}/runs/run-0", folder)
        (folder / "run.json").write_text(json.dumps(record | {"name": folder.name}))
    with serving(many.url, tmp_path) as measure:
        measure(f"first page of {NUM_RUNS} runs", *[""] * REPETITIONS)
        while (answer := json.loads(measure("  a part of the others", "runs")))["num_unread"]:
            pass
        assert len(answer["rows"]) == NUM_RUNS
        measure("  all of them", *["runs"] * REPETITIONS)
        measure("  what is new", *[f"runs?since={answer['number']}"] * REPETITIONS)
