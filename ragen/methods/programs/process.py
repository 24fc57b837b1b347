"""One program: started with a clean environment in a scratch folder, limited, and ended with all that it started.

    settings, task, address, key -> RunningProgram -> poll -> Ended

Not a sandbox: the program has the rights of this user, its files and its network. See `warden` for the limits.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import psutil

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.sources import find
from starpo.ragen.methods.programs.settings import MODEL, PLACEHOLDER, ProgramSettings
from starpo.ragen.methods.programs.tasks import as_json

KEPT_BYTES = 1 << 16
"""Bytes of the end of each stream that are kept."""
_WARDEN = Path(__file__).with_name("warden.py")
_MAX_VARIABLE = 100_000
"""Linux allows a variable 128 KiB; a longer task is on standard input alone."""
_MAX_TOLD = 300
_END_S = 15.0
LATE_S = 30.0
"""Time after its limit in which a program must have been ended by its warden."""
_FORKING: dict[tuple[Any, ...], socket.socket] = {}
"""What a process that forks wardens was started for -> the socket over which it is sent files."""
_LOCK = Lock()


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        status: 'done'; 'died' (a non-zero exit status, a signal, or it could not be started); 'hung' (out of time);
            'flooded' (too much output).
        detail: The reason in words; empty if done.
        output: End of its standard output, up to `KEPT_BYTES`.
    """

    status: str
    detail: str
    output: str


class RunningProgram:
    """A program in its own session, watched by a process of its own (`warden`)."""

    def __init__(
        self,
        settings: ProgramSettings,
        task: Mapping[str, Any],
        base_url: str = "",
        key: str = "",
        *,
        command: list[str] | None = None,
    ) -> None:
        """Start it, with the task as JSON on its standard input.

        Args:
            settings: Command, limits, and the variables to inherit.
            task: The task, JSON values.
            base_url: Address of the endpoint, which it finds in OPENAI_BASE_URL.
            key: Its key, in OPENAI_API_KEY.
            command: Started in place of the program, under the same limits, without an endpoint.

        Raises:
            EnvironmentFault: If the command cannot be found.
        """
        given, values, told = as_json(task), {}, {}
        if command is None:
            values = {"task": given, "base_url": base_url, "api_key": key, "model": MODEL}
            told = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key, "OPENAI_MODEL": MODEL}
            if len(given.encode()) <= _MAX_VARIABLE:
                told["RAGEN_TASK"] = given
        words = words_of(command or settings.command, values)
        self._ended: Ended | None = None
        self._key = key
        self._settings = settings
        self._warden = 0
        self._give_up_at = time.monotonic() + settings.time_limit_s + LATE_S
        self._scratch = tempfile.mkdtemp(prefix="ragen-program-")
        self._report: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self._control, theirs = socket.socketpair()
        spec = {
            "command": words,
            "environment": {**environment_of(settings, self._scratch), **told},
            "scratch": self._scratch,
            "time_limit_s": settings.time_limit_s,
            "max_output_bytes": settings.max_output_bytes,
            "kept_bytes": KEPT_BYTES,
        }
        self._report.write(json.dumps(spec).encode())
        self._report.seek(0)
        with theirs, tempfile.TemporaryFile() as standard_input:
            standard_input.write(given.encode("utf-8", "surrogatepass"))
            standard_input.seek(0)
            function = words if isinstance(words, str) else ""
            _fork_warden(settings, function, [theirs.fileno(), self._report.fileno(), standard_input.fileno()])

    def poll(self) -> Ended | None:
        """Return how it ended; None while it runs."""
        if self._ended is None and time.monotonic() > self._give_up_at:
            self._end_by_force()
        if self._ended is None and self._is_over(0.0):
            self._ended = self._read_report()
            self._report.close()
            self._control.close()
            shutil.rmtree(self._scratch, onerror=_make_removable)
        return self._ended

    def wait(self) -> Ended:
        """Wait until it has ended; its time limit bounds this."""
        while (ended := self.poll()) is None:
            self._is_over(1.0)
        return ended

    def kill(self) -> None:
        """End it and all that it started; nothing happens if it has ended."""
        if self._ended is not None:
            return
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        if not self._is_over(_END_S):
            self._end_by_force()
        self.poll()

    def _end_by_force(self) -> None:
        """End it together with its warden, which does not react: a program may have stopped it."""
        kill_holders(self._key)
        if self._warden:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._warden, signal.SIGKILL)
        self._is_over(_END_S)

    def _is_over(self, timeout_s: float) -> bool:
        """Wait for the end of the warden, which holds the other end of the socket, and writes its process id to it."""
        self._control.settimeout(timeout_s)
        try:
            while told := self._control.recv(32):
                self._warden = int(told)
            return True
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            return True

    def _read_report(self) -> Ended:
        self._report.seek(0)
        try:
            told = json.loads(self._report.read())
            status = told["status"]
        except (ValueError, KeyError):  # its warden was killed, by nobody but a program or an administrator
            kill_holders(self._key)
            return Ended("died", "its warden was killed", "")
        settings = self._settings
        detail = {
            "done": "",
            "died": _told_of_death(told),
            "hung": f"still running after {settings.time_limit_s:g} s (environment.time_limit_s)",
            "flooded": f"more than {settings.max_output_bytes:,} bytes of output (environment.max_output_bytes)",
            "ended": "it was ended from outside",
        }[status]
        return Ended("died" if status == "ended" else status, detail, told["output"])


def words_of(command: str | list[str], values: Mapping[str, str]) -> str | list[str]:
    """Return what to start: a function as it is, or words, with names of existing files as absolute paths.

    Args:
        command: `module:function` or words.
        values: Placeholder -> its value.

    Raises:
        EnvironmentFault: If the program or the module cannot be found.
    """
    if isinstance(command, str):
        module = command.partition(":")[0]
        if find(module) is None:
            raise EnvironmentFault(
                f"{command}: there is no module '{module}'; add its folder to PYTHONPATH where stages run, or install "
                "its package"
            )
        return command
    words = [PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word) for word in command]
    program = shutil.which(words[0], path=search_path())
    if program is None:
        raise EnvironmentFault(
            f"the command '{words[0]}' is not found here, or is not executable; give its path, or extend PATH"
        )
    return [str(Path(program).absolute()), *map(_absolute, words[1:])]


def _fork_warden(settings: ProgramSettings, function: str, files: list[int]) -> None:
    """Have a warden forked, by a process that is started if need be.

    Args:
        settings: The variables to inherit.
        function: `module:function` to call, which that process has imported; '' to start a command.
        files: Control, report and task, as `warden` takes them.
    """
    with _LOCK:
        which = (function, function and settings.code_digest, *environment_of(settings, "").items())
        for _ in range(2):  # one that a program has killed is replaced
            if which not in _FORKING:
                _FORKING[which] = _started(settings, function)
            try:
                socket.send_fds(_FORKING[which], [b"+"], files)
                return
            except OSError:
                _FORKING.pop(which).close()
        raise EnvironmentFault(f"{function or 'warden.py'}: its process ends as soon as it is started")


def _started(settings: ProgramSettings, function: str) -> socket.socket:
    ours, theirs = socket.socketpair()
    scratch = tempfile.gettempdir()
    words = ["-P", str(_WARDEN), function] if function else ["-I", "-S", str(_WARDEN)]
    with theirs:
        subprocess.Popen(
            [sys.executable, *words],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment_of(settings, scratch),
            cwd=scratch,
            start_new_session=True,
        )
    return ours


def environment_of(settings: ProgramSettings, scratch: str) -> dict[str, str]:
    """Return the environment variables of a program: nothing is inherited but what is named here or in the settings."""
    inherited = {name: os.environ[name] for name in ("LANG", *settings.variables) if name in os.environ}
    python_path = os.environ.get("PYTHONPATH", "")
    own = {
        "PATH": search_path(),
        "LANG": "C.UTF-8",
        "HOME": scratch,
        "TMPDIR": scratch,
        "NO_PROXY": "127.0.0.1,localhost",
    }
    if python_path:
        own["PYTHONPATH"] = os.pathsep.join(
            str(Path(folder).absolute()) for folder in python_path.split(os.pathsep) if folder
        )
    return own | inherited


def search_path() -> str:
    """Return where commands are looked for: the folder of this Python, so that `python` is this one, then PATH."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def kill_holders(key: str) -> None:
    """Kill the processes of this user that have a key among their environment variables."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if key and process.pid != os.getpid() and process.environ().get("OPENAI_API_KEY") == key:
                process.kill()


def _absolute(word: str) -> str:
    try:
        return str(Path(word).absolute()) if Path(word).exists() else word
    except (ValueError, OSError):  # a null byte; a name that is too long
        return word


def _make_removable(remove: Any, path: str, _: Any) -> None:
    """Give the rights that lack for removing a path, and try again; what still cannot be removed stays."""
    with contextlib.suppress(OSError):
        Path(path).parent.chmod(0o700)
        Path(path).chmod(0o700)
        remove(path)


def _told_of_death(told: Mapping[str, Any]) -> str:
    code = told["code"] or 0
    names = {one.value: one.name for one in signal.Signals}  # those of real time have none
    reason = f"exit status {code}" if code >= 0 else f"signal {names.get(-code, -code)}"
    lines = [line.strip() for line in told["errors"].splitlines() if line.strip()]
    return f"{reason}: {without_secrets(lines[-1])[:_MAX_TOLD]}" if lines else reason
