"""A local Prefect server, the process that serves the deployments, and the pages of runs: start, supervise, stop.

All use loopback only, run in the background, log to the state folder, and leave a pid file there, so that
`starpo down` stops exactly what `starpo up` started.
"""

import fcntl
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from starpo.flows import view_server
from starpo.flows.background import Process, ServerError, environments, unwritable
from starpo.ragen.core.allocator import keeping_freed_memory

SLOW_START_S = 120.0
"""Time after which it is said what is waited for: a busy machine may need more."""
STARTING = "starting the local Prefect server (half a minute the first time)"
_SERVE = "starpo.flows.serve"
LOCAL_API = "http://127.0.0.1:4200/api"

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_SERVER_ENV = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}
_RETRIES = "8"
"""Retries of a run's request to the server, after 2, 4, 8, ... s: a server may be busy, or restart, for eight minutes
without ending a run. Prefect's default is one minute, which a database that other processes keep busy can exceed."""


class ServerGoneError(ServerError):
    """The server does not answer, or has stopped answering."""


class ServerBusyError(ServerError):
    """The server is too busy to answer in time."""


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


def start(state_dir: str, tell: Callable[[str], None] = lambda line: None) -> str:
    """Start a server and a serving process unless they are running, and return the API's URL.

    Of several concurrent commands, one starts the processes and the others wait for it. A process that lives is waited
    for, however long it takes.

    Args:
        state_dir: Folder of pid files and logs.
        tell: Called with a line where a process takes long.

    Raises:
        ServerError: If either ends; the message names its log.
    """
    with _alone(Path(state_dir)):
        return _start(state_dir, tell)


def _start(state_dir: str, tell: Callable[[str], None]) -> str:
    from starpo.ragen.config.runtime import Runtime
    from starpo.ragen.store import Store

    url = api_url()
    server, serve = processes(state_dir)
    if not is_healthy(url):
        if server.running() is None:  # else it is starting, or busy runs leave it no core
            address = urlsplit(url)
            if address.hostname not in _LOOPBACK:
                raise ServerError(f"no Prefect server answers at {url}, and only a local one can be started from here")
            server.start(
                sys.executable, "-m", "prefect", "server", "start",
                "--host", address.hostname, "--port", str(address.port or 4200),
                env={**_SERVER_ENV, **_database(state_dir), "PREFECT_API_URL": url},
            )  # fmt: skip
        elif urlsplit(other := (server.environment() or {}).get("PREFECT_API_URL", url)).port != urlsplit(url).port:
            raise ServerError(
                f"no Prefect server answers at {url}: the one that was started here listens at {other}. Set "
                "PREFECT_API_URL to that, or stop it with `starpo down` and run the same command again"
            )
        _wait(lambda: is_healthy(url), server, f"the Prefect server does not answer at {url}", tell)
    store = Store(Runtime.current().store).address  # absolute: other commands may run in other folders
    if serve.running() is None:
        _refuse_another_store(url, store)
    view_server.begin(state_dir, store)
    if serve.running() is None:
        ready = Path(state_dir) / "serve.ready"
        ready.unlink(missing_ok=True)
        retries = {"PREFECT_CLIENT_MAX_RETRIES": os.environ.get("PREFECT_CLIENT_MAX_RETRIES", _RETRIES)}
        # which runs inherit
        env = {**keeping_freed_memory(), **retries, "PREFECT_API_URL": url, "STARPO_STORE": store}
        serve.start(sys.executable, "-m", _SERVE, str(ready), env=env)
        _wait(ready.exists, serve, "the process that serves the deployments is not ready", tell)
    return url


def _database(state_dir: str) -> dict[str, str]:
    """Return the settings of the server's database: one of this state folder, unless Prefect's settings name another.

    Servers of two folders would otherwise share the deployments in the user's home, and execute each other's runs.
    """
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    if "home" in settings.model_fields_set or {"connection_url", "driver"} & settings.server.database.model_fields_set:
        return {}
    database = Path(state_dir, "prefect.db").absolute()
    return {"PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}"}


def _refuse_another_store(url: str, store: str) -> None:
    """Raise unless the server's flow runs are stored here: any process that serves its deployments may execute them.

    Raises:
        ServerError: If a process serves the deployments of this server for another store.
    """
    for pid, environment in environments(_SERVE):
        other = environment.get("STARPO_STORE", store)
        address, served = urlsplit(url), urlsplit(environment.get("PREFECT_API_URL", ""))
        same_host = address.hostname == served.hostname or {address.hostname, served.hostname} <= _LOOPBACK
        if same_host and address.port == served.port and other != store:
            beside = address._replace(netloc=f"{address.hostname}:{(address.port or 4200) + 1}").geturl()
            raise ServerError(
                f"the Prefect server at {url} executes runs of another store, {other} (process {pid}), and would store "
                f"yours there, not in {store}. Start a server of your own with `export PREFECT_API_URL={beside}` and "
                "the same command; or train without one (`--local`); or stop the other with `starpo down` in its folder"
            )


def serve_again(state_dir: str, tell: Callable[[str], None] = lambda line: None) -> None:
    """Restart the serving process, so that it serves deployments that were added since it started.

    Args:
        state_dir: As for `start`.
        tell: As for `start`.

    Raises:
        ServerError: If it has active runs, or ends.
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
        _start(state_dir, tell)


def stop(state_dir: str) -> list[str]:
    """Stop what `start` started, and return the names of the stopped processes."""
    server, serve = processes(state_dir)
    return [process.name for process in (serve, server, view_server.process(state_dir)) if process.stop()]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of this state folder, so that only one command starts or restarts its processes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "start.lock").open("ab")
    except OSError as error:
        raise unwritable(folder, error) from error
    with lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _wait(is_ready: Callable[[], bool], process: Process, complaint: str, tell: Callable[[str], None]) -> None:
    slow_at, is_slow = time.monotonic() + SLOW_START_S, False
    while not is_ready():
        if process.running() is None:
            end = "\n".join(process.log.read_text(errors="replace").splitlines()[-8:])
            raise ServerError(f"{complaint}: it has exited. Its log, {process.log}, ends with:\n{end}")
        if not is_slow and time.monotonic() > slow_at:
            is_slow = True
            tell(
                f"{complaint} after {SLOW_START_S:.0f} s, but it is alive, so it is waited for; Ctrl-C stops waiting, "
                f"`starpo down` stops it. Its log: {process.log}"
            )
        time.sleep(0.3)
