"""Background processes outlive the terminal, and one that is slow to respond is not started twice."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from starpo.flows import server
from starpo.flows.server import LOCAL_API, Process, ServerError

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


def test_inherited_settings_of_runs_are_known(tmp_path):
    assert server.served_environment(str(tmp_path)) is None
    process, begun = Process("serve", tmp_path), tmp_path / "begun"  # until then, a fork of this process
    code = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"
    process.start(sys.executable, "-c", code, str(begun), env={"STARPO_STORE": "s3://mine"})
    try:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.served_environment(str(tmp_path))["STARPO_STORE"] == "s3://mine"
        assert os.getsid(process.running().pid) != os.getsid(0), "it would end with the terminal"
    finally:
        assert process.stop()


def test_ended_process_is_not_running(tmp_path):
    process = Process("short", tmp_path)
    process.start(sys.executable, "-c", "")
    deadline = time.monotonic() + 30
    while process.running() is not None:  # it has ended, but its exit code is not collected yet
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_process_ending_while_stopped_is_fine(tmp_path, monkeypatch):
    """This happens when `starpo down` comes just after the process was found running."""
    child = subprocess.Popen(SLEEP)
    dead = psutil.Process(child.pid)
    child.kill()
    child.wait()
    monkeypatch.setattr(Process, "running", lambda _: dead)
    process = Process("gone", tmp_path)
    assert process.num_children() == 0
    assert process.stop()


def test_stopping_waits_for_no_zombie(tmp_path, monkeypatch):
    """A container's first process may collect no status of those whose parent has ended."""
    code = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, *SLEEP], stdout=subprocess.PIPE, text=True) as parent:
        try:
            uncollected = psutil.Process(int(parent.stdout.readline()))
            monkeypatch.setattr(Process, "running", lambda _: uncollected)
            begun = time.monotonic()
            assert Process("uncollected", tmp_path).stop()
            assert time.monotonic() - begun < 5
            assert uncollected.status() == psutil.STATUS_ZOMBIE
        finally:
            parent.kill()


def test_impossible_folder_is_one_message(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match="STARPO_STATE_DIR"):
        Process("sleep", tmp_path / "file" / "state").start(*SLEEP)


def test_slow_server_is_waited_for(tmp_path, monkeypatch):
    """Two runs on two cores can slow it down so much that the first health check gets no answer."""
    answers = iter([False, False, True])
    monkeypatch.setattr(server, "is_healthy", lambda _: next(answers))
    monkeypatch.setattr(server, "api_url", lambda: "http://127.0.0.1:1/api")
    both = server.processes(str(tmp_path))
    for process in both:
        process.start(*SLEEP, env={"PREFECT_API_URL": "http://localhost:1/api"})
    pids = [process.running().pid for process in both]
    try:
        server.start(str(tmp_path))
        assert [process.running().pid for process in both] == pids
    finally:
        server.stop(str(tmp_path))
    assert list(answers) == []


def test_concurrent_commands_start_one_server(tmp_path, monkeypatch):
    """Otherwise `starpo down` would know only the second one's processes, and two would serve the same deployments."""
    started, start = {}, Process.start
    monkeypatch.setenv("STARPO_STORE", "store")

    def slowly(process: Process, *_: str, env: dict[str, str]) -> None:
        assert process.name not in started
        started[process.name] = env
        time.sleep(0.2)
        start(process, *SLEEP)
        (tmp_path / f"{process.name}.ready").touch()

    monkeypatch.setattr(Process, "start", slowly)
    monkeypatch.setattr(server, "api_url", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr(server, "is_healthy", lambda _: (tmp_path / "server.ready").exists())
    try:
        with ThreadPoolExecutor(2) as commands:
            list(commands.map(server.start, [str(tmp_path)] * 2))
        assert list(started) == ["server", "serve"]
        assert started["serve"]["STARPO_STORE"] == str(Path("store").absolute())  # commands may run in other folders
    finally:
        server.stop(str(tmp_path))


def test_server_elsewhere_named_at_once(tmp_path, monkeypatch):
    there, here = "http://127.0.0.1:1/api", "http://127.0.0.1:2/api"
    monkeypatch.setattr(server, "is_healthy", lambda _: False)
    monkeypatch.setattr(server, "api_url", lambda: here)
    process, begun = server.processes(str(tmp_path))[0], tmp_path / "begun"  # until then, a fork of this process
    code = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"
    process.start(sys.executable, "-c", code, str(begun), env={"PREFECT_API_URL": there})
    try:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(ServerError, match=f"answers at {here}: .* listens at {there}.*starpo down"):
            server.start(str(tmp_path))
    finally:
        assert process.stop()


@pytest.mark.ci
def test_local_server_is_the_default(tmp_path: Path) -> None:
    """This holds in any folder, as for an installed package; Prefect's own client then uses it too."""
    code = (
        "from prefect.settings import PREFECT_API_URL as url; from starpo.flows.server import api_url; "
        "print(url.value(), api_url(), url.value())"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**env, "HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert run.stdout.split() == ["None", LOCAL_API, LOCAL_API], run.stderr
