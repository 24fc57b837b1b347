"""Background processes outlive the terminal, and one that is slow to respond is not started twice."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from prefect.settings import Settings

from starpo.flows import server
from starpo.flows.background import Process, ServerError
from starpo.flows.server import LOCAL_API

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_inherited_settings_of_runs_are_known(tmp_path):
    assert server.served_environment(str(tmp_path)) is None
    process, begun = Process("serve", tmp_path), tmp_path / "begun"  # until then, a fork of this process
    code = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"
    process.start(sys.executable, "-c", code, str(begun), env={"STARPO_STORE": "s3://mine"})
    try:
        wait_for(begun.exists)
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


@pytest.mark.parametrize("lives", [True, False], ids=["lives", "dies"])
def test_slow_start_waits_while_alive(tmp_path, monkeypatch, lives):
    monkeypatch.setattr(server, "SLOW_START_S", 0.2)
    monkeypatch.setattr(server, "api_url", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr(server.view_server, "begin", lambda *_: None)
    process, start = server.processes(str(tmp_path))[0], Process.start
    code = f"import time; time.sleep({60 if lives else 2}); raise SystemExit('no more')"

    def begin(one: Process, *_: str, env: dict[str, str]) -> None:
        start(one, sys.executable, "-c", code)
        (tmp_path / f"{one.name}.ready").touch()

    monkeypatch.setattr(Process, "start", begin)
    began = time.monotonic()
    monkeypatch.setattr(server, "is_healthy", lambda _: lives and time.monotonic() > began + 1)
    lines: list[str] = []
    try:
        if lives:
            server.start(str(tmp_path), lines.append)
        else:
            with pytest.raises(ServerError, match=r"does not answer .*: it has exited. Its log, .*\nno more"):
                server.start(str(tmp_path), lines.append)
    finally:
        server.stop(str(tmp_path))
    (line,) = lines
    assert "does not answer at http://127.0.0.1:1/api after 0 s, but it is alive" in line
    assert str(process.log) in line


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
        assert list(started) == ["server", "view", "serve"]
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
        wait_for(begun.exists)
        with pytest.raises(ServerError, match=f"answers at {here}: .* listens at {there}.*starpo down"):
            server.start(str(tmp_path))
    finally:
        assert process.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_server_of_another_store_refused(tmp_path, monkeypatch, host):
    """Either folder's process could take the other's runs, and store them where nobody looks for them."""
    url, ready = "http://127.0.0.1:1/api", tmp_path / "ready"
    monkeypatch.setattr(server, "is_healthy", lambda _: True)
    monkeypatch.setattr(server, "api_url", lambda: url)
    monkeypatch.setattr(server.view_server, "begin", lambda *_: None)
    monkeypatch.setenv("STARPO_STORE", "/second/store")
    code = "import pathlib, sys, time; pathlib.Path(sys.argv[-1]).touch(); time.sleep(60)"
    environment = {**os.environ, "PREFECT_API_URL": f"http://{host}:1/api", "STARPO_STORE": "/first/store"}
    with subprocess.Popen([sys.executable, "-c", code, "starpo.flows.serve", str(ready)], env=environment) as first:
        try:
            wait_for(ready.exists)
            with pytest.raises(ServerError, match=rf"{url} .* /first/store \(process {first.pid}\).*127.0.0.1:2/api"):
                server.start(str(tmp_path))
            monkeypatch.setenv("STARPO_STORE", "/first/store")
            started: list[str] = []
            monkeypatch.setattr(Process, "start", lambda process, *_, **__: started.append(process.name))
            monkeypatch.setattr(server, "_wait", lambda *_: None)
            server.start(str(tmp_path))
            assert started == ["serve"], "two folders may share a store"
        finally:
            first.kill()


def test_servers_of_folders_share_no_database(tmp_path, monkeypatch):
    """Deployments in one database would be served by both folders' processes."""
    started: dict[str, dict[str, str]] = {}
    monkeypatch.setattr(Process, "start", lambda process, *_, env: started.update({process.name: env}))
    monkeypatch.setattr(server, "is_healthy", lambda _: False)
    monkeypatch.setattr(server, "api_url", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr(server, "_wait", lambda *_: None)
    name, used = "PREFECT_SERVER_DATABASE_CONNECTION_URL", {}
    for home in (None, tmp_path / "home"):
        with monkeypatch.context() as changed:
            changed.chdir(tmp_path)  # without the prefect.toml of this repository
            changed.delenv("PREFECT_HOME", raising=False)
            if home:
                changed.setenv("PREFECT_HOME", str(home))
            changed.setattr("prefect.settings.get_current_settings", Settings)  # read anew
            server.start(str(tmp_path / "state"))
        used[home] = started["server"].get(name)
    assert used == {None: f"sqlite+aiosqlite:///{tmp_path}/state/prefect.db", tmp_path / "home": None}


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
