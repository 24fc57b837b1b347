"""The process that forks the wardens of programs: it has imported what they call, so that a start takes milliseconds.

settings, function -> fork_warden -> fork server, started if need be -> warden
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Lock
from typing import Any

import psutil

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.methods.programs.settings import ProgramSettings

KILLED_S = 2.0
"""Time in which a killed process must be gone."""
NO_SERVER = "the process that starts it has ended before it did so"
_WARDEN = Path(__file__).with_name("warden.py")


class ForkServer:
    """The process that forks wardens, of programs with the same function and environment variables."""

    def __init__(self, settings: ProgramSettings, function: str) -> None:
        self.name = function or _WARDEN.name
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(KILLED_S)  # a stopped process reads nothing, until the buffer is full
        scratch = tempfile.gettempdir()
        words = ["-P", str(_WARDEN), function] if function else ["-I", "-S", str(_WARDEN)]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment_of(settings, scratch),
                cwd=scratch,
                start_new_session=True,
            )

    def fork(self, files: list[int]) -> None:
        """Have a warden forked.

        Args:
            files: Control, report and task, as `warden` takes them.

        Raises:
            OSError: If the process has ended, or does not read.
        """
        socket.send_fds(self._socket, [b"+"], files)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill_if_stopped(self) -> None:
        """Kill it if a signal has stopped it."""
        with contextlib.suppress(psutil.Error):
            if psutil.Process(self._process.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                self.kill()

    def kill(self) -> None:
        """Kill it. The wardens that it has forked go on."""
        self._socket.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_S)


_SERVERS: dict[tuple[Any, ...], ForkServer] = {}
"""Function, its code, and environment variables -> the fork server."""
_LOCK = Lock()


def fork_warden(settings: ProgramSettings, function: str, files: list[int]) -> ForkServer:
    """Have a warden forked, by a fork server that is started if need be.

    Args:
        settings: The variables to inherit.
        function: `module:function` to call, which that process has imported; '' to start a command.
        files: Control, report and task, as `warden` takes them.

    Raises:
        EnvironmentFault: If it does not stay alive.
        OSError: If it cannot be started.
    """
    which = (function, function and settings.code_digest, *environment_of(settings, "").items())
    with _LOCK:
        for _ in range(2):  # one that a program has killed is replaced
            server = _SERVERS.get(which) or _SERVERS.setdefault(which, ForkServer(settings, function))
            try:
                server.fork(files)
                return server
            except OSError:
                _SERVERS.pop(which).kill()
    raise EnvironmentFault(f"{server.name}: {NO_SERVER}")


def environment_of(settings: ProgramSettings, scratch: str) -> dict[str, str]:
    """Return the environment variables of a program: nothing is inherited but what is named here or in the settings."""
    inherited = {name: os.environ[name] for name in ("LANG", *settings.variables) if name in os.environ}
    python_path = os.environ.get("PYTHONPATH", "")
    variables = {
        "PATH": search_path(),
        "LANG": "C.UTF-8",
        "HOME": scratch,
        "TMPDIR": scratch,
        "NO_PROXY": "127.0.0.1,localhost",
    }
    if python_path:
        variables["PYTHONPATH"] = os.pathsep.join(
            str(Path(folder).absolute()) for folder in python_path.split(os.pathsep) if folder
        )
    return variables | inherited


def search_path() -> str:
    """Return where commands are looked for: the folder of this Python, so that `python` is this one, then PATH."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
