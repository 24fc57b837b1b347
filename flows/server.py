"""A local Prefect server and the process that serves the deployments: start, supervise, stop.

Both use loopback only, run in the background, log to the state folder, and leave a pid file there, so that
`starpo down` stops exactly what `starpo up` started.
"""

import fcntl
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from starpo.ragen.core.allocator import keeping_freed_memory
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.process_start import is_alive, process_start

START_TIMEOUT_S = 120.0
LOCAL_API = "http://127.0.0.1:4200/api"

_SERVER_ENV = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}
_RETRIES = "8"
"""Retries of a run's request to the server, after 2, 4, 8, ... s: a server may be busy, or restart, for eight minutes
without ending a run. Prefect's default is one minute, which a database that other processes keep busy can exceed."""


class ServerError(StarPOError):
    """The local server or the serving process cannot be started or reached."""


class ServerGoneError(ServerError):
    """The server does not answer, or has stopped answering."""


class ServerBusyError(ServerError):
    """The server is too busy to answer in time."""


@dataclass(frozen=True)
class Process:
    """A background process started from here, identified by its pid and start time (`ragen.core.process_start`).

    Attributes:
        name: Base name of its pid file and log.
        folder: Folder of these files.
    """

    name: str
    folder: Path

    @property
    def log(self) -> Path:
        """File that receives its output."""
        return self.folder / f"{self.name}.log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / f"{self.name}.pid"

    def running(self) -> psutil.Process | None:
        """Return the process if it is alive and is the one that was started, else None."""
        try:
            pid, started = self._pid_file.read_text().split()
            return psutil.Process(int(pid)) if is_alive(int(pid), started) else None
        except (OSError, ValueError, psutil.NoSuchProcess):
            return None

    def environment(self) -> dict[str, str] | None:
        """Return the environment variables that it was started with; None if not running or not readable."""
        process = self.running()
        try:
            return process.environ() if process is not None else None
        except psutil.Error:
            return None

    def start(self, *command: str, env: dict[str, str] | None = None) -> None:
        """Start it in a new session, which outlives the terminal; `env` is added to the current environment.

        Raises:
            ServerError: If its log cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            output = self.log.open("ab")
        except OSError as error:
            raise _unwritable(self.log, error) from error
        with output as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self._pid_file.write_text(f"{child.pid} {process_start(child.pid)}")

    def num_children(self) -> int:
        """Count its live child processes."""
        process = self.running()
        return len(_children(process)) if process is not None else 0

    def stop(self) -> bool:
        """End it and its descendants. Returns whether it was running."""
        process = self.running()
        self._pid_file.unlink(missing_ok=True)
        if process is None:
            return False
        family = [process, *_children(process, recursive=True)]
        for member in family:
            _signal(member.terminate)
        for member in _unended(family, timeout_s=10):
            _signal(member.kill)
        return True


def _unwritable(path: Path, error: OSError) -> ServerError:
    return ServerError(f"{path} cannot be written ({error.strerror}); set STARPO_STATE_DIR to a folder that can")


def _children(process: psutil.Process, *, recursive: bool = False) -> list[psutil.Process]:
    """List its live child processes; none if it has just ended."""
    try:
        return process.children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def _unended(family: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Wait for processes to end; return those that have not. A zombie has: its parent may never collect its status."""
    deadline = time.monotonic() + timeout_s
    while family and time.monotonic() < deadline:
        _, alive = psutil.wait_procs(family, timeout=0.1)
        family = [member for member in alive if _status(member) not in (None, psutil.STATUS_ZOMBIE)]
    return family


def _status(process: psutil.Process) -> str | None:
    """Return the status of a process; None if it has just ended."""
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return None


def _signal(send: Callable[[], None]) -> None:
    with suppress(psutil.NoSuchProcess):
        send()


def api_url() -> str:
    """Determine and fix the URL of the Prefect API that this process uses.

    It is PREFECT_API_URL, or the URL in a `prefect.toml` or the user's Prefect profile; by default, a local server at
    Prefect's default port. (Prefect's own default is a temporary server per command, which keeps no state.)
    """
    from prefect.context import refresh_global_settings_context
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():
        os.environ["PREFECT_API_URL"] = LOCAL_API
        refresh_global_settings_context()
    return str(PREFECT_API_URL.value())


def ui_url() -> str:
    """Return the URL of that server's UI, which on Prefect Cloud is on another host."""
    from prefect.settings import PREFECT_UI_URL

    api_url()
    return str(PREFECT_UI_URL.value())


def is_healthy(url: str) -> bool:
    """Whether a Prefect API answers at this address. One that demands authentication, like Prefect Cloud, is up."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=3) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def processes(state_dir: str) -> tuple[Process, Process]:
    """Return the server and the serving process of this state folder."""
    folder = Path(state_dir)
    return Process("server", folder), Process("serve", folder)


def served_environment(state_dir: str) -> dict[str, str] | None:
    """Return the environment variables of the serving process, which its runs inherit; None if unknown."""
    return processes(state_dir)[1].environment()


def start(state_dir: str) -> str:
    """Start a server and a serving process unless they are running, and return the API's URL.

    Of several concurrent commands, one starts the processes and the others wait for it.

    Args:
        state_dir: Folder of pid files and logs.

    Raises:
        ServerError: If either does not come up in time; the message names its log.
    """
    with _alone(Path(state_dir)):
        return _start(state_dir)


def _start(state_dir: str) -> str:
    from starpo.ragen.config.runtime import Runtime
    from starpo.ragen.store import Store

    url = api_url()
    server, serve = processes(state_dir)
    if not is_healthy(url):
        if server.running() is None:  # else it is starting, or busy runs leave it no core
            address = urlsplit(url)
            if address.hostname not in ("127.0.0.1", "localhost", "::1"):
                raise ServerError(f"no Prefect server answers at {url}, and only a local one can be started from here")
            server.start(
                sys.executable, "-m", "prefect", "server", "start",
                "--host", address.hostname, "--port", str(address.port or 4200),
                env={**_SERVER_ENV, "PREFECT_API_URL": url},
            )  # fmt: skip
        elif urlsplit(other := (server.environment() or {}).get("PREFECT_API_URL", url)).port != urlsplit(url).port:
            raise ServerError(
                f"no Prefect server answers at {url}: the one that was started here listens at {other}. Set "
                "PREFECT_API_URL to that, or stop it with `starpo down` and run the same command again"
            )
        _wait(lambda: is_healthy(url), server, f"the Prefect server did not answer at {url}")
    if serve.running() is None:
        ready = Path(state_dir) / "serve.ready"
        ready.unlink(missing_ok=True)
        store = Store(Runtime.current().store).address  # absolute: other commands may run in other folders
        retries = {"PREFECT_CLIENT_MAX_RETRIES": os.environ.get("PREFECT_CLIENT_MAX_RETRIES", _RETRIES)}
        # which runs inherit
        env = {**keeping_freed_memory(), **retries, "PREFECT_API_URL": url, "STARPO_STORE": store}
        serve.start(sys.executable, "-m", "starpo.flows.serve", str(ready), env=env)
        _wait(ready.exists, serve, "the process that serves the deployments did not start")
    return url


def serve_again(state_dir: str) -> None:
    """Restart the serving process, so that it serves deployments that were added since it started.

    Raises:
        ServerError: If it has active runs, or does not come up.
    """
    serve = processes(state_dir)[1]
    with _alone(Path(state_dir)):
        if serve.num_children():
            raise ServerError(
                "the serving process was started before this deployment existed, and is busy with other runs. Wait "
                "until they end, then run the same command again (a preset can be run as a file meanwhile: "
                "`starpo train FILE.toml`); or stop everything with `starpo down`"
            )
        serve.stop()
        _start(state_dir)


def stop(state_dir: str) -> list[str]:
    """Stop what `start` started, and return the names of the stopped processes."""
    server, serve = processes(state_dir)
    return [process.name for process in (serve, server) if process.stop()]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of this state folder, so that only one command starts or restarts its processes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "start.lock").open("ab")
    except OSError as error:
        raise _unwritable(folder, error) from error
    with lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _wait(is_ready: Callable[[], bool], process: Process, complaint: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_ready():
        if process.running() is None:
            end = "\n".join(process.log.read_text(errors="replace").splitlines()[-8:])
            raise ServerError(f"{complaint}: it exited at once. Its log, {process.log}, ends with:\n{end}")
        if time.monotonic() > deadline:
            raise ServerError(f"{complaint} within {START_TIMEOUT_S:.0f} s. Its log: {process.log}")
        time.sleep(0.3)
