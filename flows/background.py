"""A process in the background: started in a session of its own, with a log, known by a pid file, and stopped."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.process_start import is_alive, process_start


class ServerError(StarPOError):
    """The local server or the serving process cannot be started or reached."""


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
            raise unwritable(self.log, error) from error
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


def environments(module: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the pid and the environment variables of each of this user's processes that run a module (`python -m`)."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if module in process.cmdline():
                yield process.pid, process.environ()


def unwritable(path: Path, error: OSError) -> ServerError:
    """Return the error of a state folder that cannot be written."""
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
