"""`starpo up`, `prefect deployment run`, `starpo train`, `runs` and `down`, as a user types them."""

import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starpo.flows.server import served_environment
from tests.flows.command import Result, ragen
from tests.flows.documents import check

pytestmark = pytest.mark.timeout(420)
BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Shell:
    """Runner of commands in a folder of their own, against a server of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api",
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_LOGGING_TO_API_ENABLED": "true",
            "STARPO_STORE": str(folder / "store"),
            "STARPO_STATE_DIR": str(folder / "state"),
            "STARPO_WANDB_MODE": "offline",
            "STARPO_THREADS": "1",
        }

    def __call__(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def look(self, *arguments: str) -> Result:
        """Run `starpo` in this process, for commands that use only the store."""
        return ragen(*arguments, cwd=self.folder, **{n: v for n, v in self.env.items() if n.startswith("STARPO_")})


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Iterator[Shell]:
    shell = Shell(tmp_path_factory.mktemp("user"))
    begun(shell.folder / "store")
    started = shell("starpo", "up", "--json")
    try:
        assert started.returncode == 0, started.stderr
        check("up", started.stdout)
        yield shell
    finally:
        shell("starpo", "down")


@pytest.fixture(scope="module")
def run(shell: Shell) -> str:
    result = shell(
        "prefect", "deployment", "run", "starpo/smoke", "-p", "iterations=1", "-p", 'run="By.hand"', "--watch"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return "By.hand"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc")
def test_runs_keep_freed_memory(shell: Shell) -> None:
    environment = served_environment(str(shell.folder / "state"))
    assert environment is not None
    assert "glibc.malloc.hugetlb=1" in environment["GLIBC_TUNABLES"]


def test_runs_survive_busy_server(shell: Shell) -> None:
    environment = served_environment(str(shell.folder / "state"))
    assert environment is not None
    retries = int(environment["PREFECT_CLIENT_MAX_RETRIES"])
    assert sum(2**retry for retry in range(1, retries + 1)) > 8 * 60  # Prefect waits 2, 4, 8, ... s


def test_scheduled_deployment_gets_runs(shell: Shell) -> None:
    """With SQLAlchemy 2.1, Prefect 3.8 cannot insert scheduled runs, so nothing with a schedule would ever run."""
    query = {
        "deployments": {"name": {"any_": ["hourly"]}},
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
        "limit": 1,
    }
    request = urllib.request.Request(
        f"{shell.env['PREFECT_API_URL']}/flow_runs/filter",
        data=json.dumps(query).encode(),
        headers={"Content-Type": "application/json"},
    )
    deadline = time.monotonic() + 90
    while not (runs := json.load(urllib.request.urlopen(request, timeout=30))):
        log = (shell.folder / "state" / "server.log").read_text()
        assert "Traceback" not in log, log[-2000:]
        assert time.monotonic() < deadline
        time.sleep(1)
    assert runs[0]["state"]["type"] == "SCHEDULED"


def test_deployment_runs_by_hand_with_parameters(shell: Shell, run: str) -> None:
    listed = json.loads(shell.look("runs", "--json").stdout)
    (row_of_run,) = [row for row in listed if row["run"] == run]
    assert (row_of_run["state"], row_of_run["iterations"], row_of_run["preset"]) == ("completed", 1, "smoke")
    assert set(row_of_run) >= {"run", "flow", "preset", "state", "iterations", "success_first", "success_last", "store"}


@pytest.mark.thorough
def test_same_settings_continue_same_run(shell: Shell, run: str) -> None:
    again = shell("starpo", "train", "smoke", "--iterations", "1", "--run", run)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "report" in again.stdout
    assert len(json.loads(shell.look("runs", "--json").stdout)) == 1


def test_wandb_has_the_run_offline(shell: Shell, run: str) -> None:
    assert list((shell.folder / "state").glob(f"wandb/offline-run-*-{run}"))


def ask(shell: Shell, what: str, **body: object) -> list[dict[str, object]]:
    request = urllib.request.Request(
        f"{shell.env['PREFECT_API_URL']}/{what}/filter",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    rows: list[dict[str, object]] = json.load(urllib.request.urlopen(request, timeout=30))
    return rows


def test_prefect_shows_name_files_and_lines(shell: Shell, run: str) -> None:
    runs = ask(shell, "flow_runs", flow_runs={"name": {"any_": [run]}})
    assert runs
    condition = {"flow_run_id": {"any_": [row["id"] for row in runs]}}
    lines = [str(row["message"]) for row in ask(shell, "logs", logs=condition, limit=200)]
    assert any(line.startswith("iteration 1 of 1: success ") and "groups kept" in line for line in lines)
    (link,) = ask(shell, "artifacts", artifacts={"key": {"any_": ["run-by-hand-files"]}})
    assert f"file://{shell.folder}/store/runs/{run}" in str(link["data"])


def test_prefect_links_page_and_shows_success(shell: Shell, run: str) -> None:
    (link,) = ask(shell, "artifacts", artifacts={"key": {"any_": ["run-by-hand-page"]}})
    address = (shell.folder / "state" / "view.address").read_text().splitlines()[0]
    assert f"({address}run/{run})" in str(link["data"])
    assert urllib.request.urlopen(f"{address}run/{run}", timeout=60).status == 200
    table = ask(shell, "artifacts", artifacts={"key": {"any_": ["run-by-hand-success"]}}, sort="CREATED_DESC")[0]
    rows = json.loads(str(table["data"]))
    curve = json.load(urllib.request.urlopen(f"{address}run/{run}/data", timeout=60))["metrics"]
    assert [row["iteration"] for row in rows] == [0, 1]
    assert rows[0]["training"] == pytest.approx(curve["rollout/success_rate"][0][1], rel=1e-5)
    assert rows[1]["training"] is None
    for place, row in enumerate(rows):
        assert row["low"] < row["high"]
        assert row["panel"] == pytest.approx(curve["evaluation/sokoban/success"][place][1], rel=1e-5)


def test_pages_of_runs_are_served(shell: Shell, run: str) -> None:
    address, store = (shell.folder / "state" / "view.address").read_text().splitlines()
    assert store == str(shell.folder / "store")
    (row,) = json.load(urllib.request.urlopen(f"{address}runs", timeout=30))["rows"]
    assert (row["run"], row["state"]) == (run, "completed")
    assert b"StarPO" in urllib.request.urlopen(f"{address}run/{run}", timeout=60).read()


@pytest.mark.thorough
def test_down_names_runs_ending_with_it(shell: Shell, run: str) -> None:
    """Must be the last test here, since it stops the server."""
    long = ["starpo", "train", "smoke", "--iterations", "500", "--run", "long"]
    with subprocess.Popen(
        [str(BIN / long[0]), *long[1:]],
        cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as watched:  # fmt: skip
        assert watched.stdout is not None
        lines = [next(watched.stdout)]
        while not (place := re.match(r"iteration (\d+)/", lines[-1])) or int(place[1]) < 2:
            lines.append(next(watched.stdout))  # progress is polled every half second, so iterations may be missed
        stopped = shell("starpo", "down")
        rest = watched.stdout.read()
    assert any("/runs/flow-run/" in line for line in lines)
    assert "stopped: serve, server, view" in stopped.stdout
    assert "active runs stopped: long" in stopped.stdout
    assert "still running without it" not in rest
    (row,) = [row for row in json.loads(shell.look("runs", "--json").stdout) if row["run"] == "long"]
    assert row["state"] in ("cancelled", "interrupted")
    assert "never awaited" not in (shell.folder / "state" / "serve.log").read_text()
