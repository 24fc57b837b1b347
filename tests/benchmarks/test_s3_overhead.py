"""Cost of object storage against a local disk in the default run, with alternating iterations.

    pytest -m benchmark tests/benchmarks/test_s3_overhead.py -s        (S3_PRESET=smoke for a quick look)

Two processes run the same settings, one with its store on disk, one on S3 (Ceph's gateway if installed, else moto's
server). Each works only while the other waits, so that both find the machine in the same condition. An iteration ends
where a rollout has ended and everything is stored, so it includes the writes in the background. Also printed: the calls
to the server per iteration, and their seconds, summed over threads.
"""

import json
import os
import statistics
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
ITERATIONS = 14

# At the end of every iteration, prints a line, and waits for one before it continues.
_RUN = """
import collections, json, sys, time
from starpo.flows.presets import preset
from starpo.tasks.loop.record import RunRecorder
from starpo.flows.starpo import starpo
from starpo.ragen.store.remote.object_storage import ObjectStorage

store, name, iterations = sys.argv[1], sys.argv[2], int(sys.argv[3])
stage, call = RunRecorder.stage, ObjectStorage._call
begun, calls = 0.0, []

def cut(self, iteration, work):
    global begun
    if work.name == "reward":
        print(json.dumps({"seconds": time.perf_counter() - begun, "calls": calls}), flush=True)
        calls.clear()
        sys.stdin.readline()
        begun = time.perf_counter()
    return stage(self, iteration, work)

def timed(self, verb, *arguments):
    started = time.perf_counter()
    try:
        return call(self, verb, *arguments)
    finally:
        calls.append((verb, time.perf_counter() - started))

RunRecorder.stage, ObjectStorage._call = cut, timed
config = preset(name, {"iterations": iterations, "evaluation.every": 1000, "evaluation.variants": {}})
starpo(config, preset=name, store=store)
"""


class TurnTaker:
    """Run in a separate process that waits after every iteration."""

    def __init__(self, store: str, log: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, store, os.environ.get("S3_PRESET", "sokoban"), str(ITERATIONS)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )
        self._log = log

    def report(self) -> dict[str, Any]:
        """Wait until its iteration ends, and return the measurements."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"seconds"'):
                return dict(json.loads(line))
        raise AssertionError(self._log.read_text()[-3000:])

    def go_on(self) -> None:
        """Start the next iteration."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Kill the run; the rest of it is not measured."""
        self._process.kill()
        self._process.wait()


def server(request: pytest.FixtureRequest) -> dict[str, str]:
    """Start Ceph's gateway or moto's server; return the environment variables of its clients."""
    program = [sys.executable, str(request.config.rootpath / "infra/s3/ceph.py")]
    run = f"/tmp/ceph-{uuid.uuid4().hex[:8]}"
    where = ["--folder", os.environ.get("CEPH_FOLDER", str(request.config.rootpath / "var/ceph")), "--run", run]
    started = subprocess.run([*program, "start", *where], capture_output=True, text=True)
    if started.returncode == 0:
        request.addfinalizer(lambda: subprocess.run([*program, "stop", *where], check=True, capture_output=True))
        print("server: Ceph's gateway")
        return dict(line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines())
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer("127.0.0.1", 0)
    moto.start()
    request.addfinalizer(moto.stop)
    print("server: moto")
    account = {"AWS_ACCESS_KEY_ID": "a-key", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_DEFAULT_REGION": "us-east-1"}
    return {"AWS_ENDPOINT_URL": "http://{}:{}".format(*moto.get_host_and_port()), **account}


def test_s3_costs_little(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    prefect_server: list[psutil.Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from prefect.settings import PREFECT_API_URL

    variables = server(request)
    bucket = f"bucket-{uuid.uuid4().hex}"
    with monkeypatch.context() as account:
        for name, value in variables.items():
            account.setenv(name, value)
        boto3.Session().client("s3").create_bucket(Bucket=bucket)
    common = {"PREFECT_API_URL": str(PREFECT_API_URL.value()), "STARPO_WANDB_MODE": "offline"}
    stores = {"disk": str(tmp_path / "store"), "S3": f"s3://{bucket}/store"}
    runs: dict[str, TurnTaker] = {}
    reports: dict[str, list[dict[str, Any]]] = {name: [] for name in stores}
    try:
        for name, store in stores.items():
            folders = {"STARPO_STATE_DIR": str(tmp_path / name), "XDG_CACHE_HOME": str(tmp_path / name / "cache")}
            runs[name] = TurnTaker(store, tmp_path / f"{name}.log", {**common, **variables, **folders})
            runs[name].report()  # no overlap of the warm starts and first rollouts
        for iteration in range(ITERATIONS - 1):
            for name in stores if iteration % 2 else reversed(stores):
                runs[name].go_on()
                reports[name].append(runs[name].report())
    finally:
        for run in runs.values():
            run.end()
    # In both, the first iteration includes starting worker processes and loading.
    disk, remote = ([report["seconds"] for report in reports[name][1:]] for name in stores)
    shares = sorted(there / here - 1 for here, there in zip(disk, remote, strict=True))
    calls = [report["calls"] for report in reports["S3"][1:]]
    print(
        f"iteration: {statistics.median(disk):.2f} s on disk, {statistics.median(remote):.2f} s on S3; median "
        f"{statistics.median(shares):+.1%} "
        f"(quartiles {shares[len(shares) // 4]:+.1%}, {shares[3 * len(shares) // 4]:+.1%})"
    )
    for verb in ("list", "read", "write", "delete"):
        seconds_of_calls = [[seconds for name, seconds in each if name == verb] for each in calls]
        number, total = statistics.median(map(len, seconds_of_calls)), statistics.median(map(sum, seconds_of_calls))
        print(f"  {verb:6} {number:4.0f} calls   {1000 * total:7.1f} ms")
