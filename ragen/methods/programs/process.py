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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.sources import find
from starpo.ragen.methods.programs.settings import MODEL, PLACEHOLDER, ProgramSettings
from starpo.ragen.methods.programs.tasks import as_json

KEPT_BYTES = 1 << 16
"""Bytes of the end of each stream that are kept."""
_HERE = Path(__file__).parent
_MAX_VARIABLE = 100_000
"""Linux allows a variable 128 KiB; a longer task is on standard input alone."""
_MAX_TOLD = 300
_END_S = 15.0
_NURSERIES: dict[tuple[Any, ...], socket.socket] = {}
"""What a nursery was started for -> the socket over which it is sent episodes."""
_NURSERY_LOCK = Lock()


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        status: 'done'; 'died' (a non-zero exit status, a signal, or it could not be started); 'hung' (out of time);
            'flooded' (too much output).
        detail: The reason in words; empty if done.
        seconds: Wall-clock seconds from its start.
        output: End of its standard output, up to `KEPT_BYTES`.
    """

    status: str
    detail: str
    seconds: float
    output: str


class RunningProgram:
    """A program in its own session, watched by a process of its own (`warden`)."""

    def __init__(self, settings: ProgramSettings, task: Mapping[str, Any], base_url: str, key: str) -> None:
        """Start it, with the task as JSON on its standard input.

        Args:
            settings: Command, limits, and the variables to inherit.
            task: The task, JSON values.
            base_url: Address of the endpoint, which it finds in OPENAI_BASE_URL.
            key: Its key, in OPENAI_API_KEY.

        Raises:
            EnvironmentFault: If the command cannot be found.
        """
        values = {"task": as_json(task), "base_url": base_url, "api_key": key, "model": MODEL}
        told = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key, "OPENAI_MODEL": MODEL}
        if len(values["task"].encode()) <= _MAX_VARIABLE:
            told["RAGEN_TASK"] = values["task"]
        self._begin(words_of(settings.command, values), settings, values["task"], told)

    @classmethod
    def of_command(cls, command: Sequence[str], settings: ProgramSettings, given: str) -> "RunningProgram":
        """Start another command under the same limits, without an endpoint.

        Args:
            command: Its words.
            settings: Limits, and the variables to inherit.
            given: Its standard input.
        """
        program = cls.__new__(cls)
        program._begin(words_of(list(command), {}), settings, given, {})
        return program

    def _begin(self, command: str | list[str], settings: ProgramSettings, given: str, told: Mapping[str, str]) -> None:
        self._began = time.monotonic()
        self._ended: Ended | None = None
        self._key = told.get("OPENAI_API_KEY", "")
        self._settings = settings
        self._warden: subprocess.Popen[bytes] | None = None
        self._scratch = tempfile.mkdtemp(prefix="ragen-program-")
        self._report: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self._control, theirs = socket.socketpair()
        spec = {
            "command": command,
            "environment": {**environment_of(settings, self._scratch), **told},
            "scratch": self._scratch,
            "time_limit_s": settings.time_limit_s,
            "max_output_bytes": settings.max_output_bytes,
            "kept_bytes": KEPT_BYTES,
        }
        self._report.write(json.dumps(spec).encode())
        self._report.seek(0)
        with theirs, tempfile.TemporaryFile() as task:
            task.write(given.encode("utf-8", "surrogatepass"))
            task.seek(0)
            if isinstance(command, str):
                send_to_nursery(settings, command, [theirs.fileno(), self._report.fileno(), task.fileno()])
            else:
                files = (self._report.fileno(), task.fileno())
                self._warden = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_HERE / "warden.py"), *map(str, files)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=files,
                    start_new_session=True,
                )

    def poll(self) -> Ended | None:
        """Return how it ended; None while it runs."""
        if self._ended is None and self._is_over(0.0):
            if self._warden is not None:
                self._warden.wait()
            self._ended = self._read_report()
            self._report.close()
            self._control.close()
            shutil.rmtree(self._scratch, onerror=_make_removable)
        return self._ended

    def wait(self) -> Ended:
        """Wait until it has ended; its time limit bounds this."""
        while (ended := self.poll()) is None:
            self._is_over(None)
        return ended

    def kill(self) -> None:
        """End it and all that it started; nothing happens if it has ended."""
        if self._ended is not None:
            return
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        if not self._is_over(_END_S):
            kill_holders(self._key)
            if self._warden is not None:
                self._warden.kill()
            self._is_over(_END_S)
        self.poll()

    def _is_over(self, timeout_s: float | None) -> bool:
        """Wait for the end of the warden, which holds the other end of the socket and never writes to it."""
        self._control.settimeout(timeout_s)
        try:
            return not self._control.recv(1)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            return True

    def _read_report(self) -> Ended:
        seconds = time.monotonic() - self._began
        self._report.seek(0)
        try:
            told = json.loads(self._report.read())
        except ValueError:  # its warden was killed: it can have been nobody but the program, or an administrator
            kill_holders(self._key)
            return Ended("died", "its warden was killed", seconds, "")
        status, settings = told["status"], self._settings
        detail = {
            "done": "",
            "hung": f"still running after {settings.time_limit_s:g} s (environment.time_limit_s)",
            "flooded": f"more than {settings.max_output_bytes:,} bytes of output (environment.max_output_bytes)",
            "ended": "it was ended from outside",
        }.get(status) or _told_of_death(told)
        detail = "" if status == "done" else detail
        return Ended("died" if status == "ended" else status, detail, seconds, told["output"])


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


def send_to_nursery(settings: ProgramSettings, function: str, files: list[int]) -> None:
    """Start a function as a program: in a fork of the process that has imported it, which is started if need be.

    Args:
        settings: The variables to inherit.
        function: `module:function`.
        files: Control, report and task, as `nursery` takes them.
    """
    with _NURSERY_LOCK:
        which = (function, settings.code_digest, *environment_of(settings, "").items())
        for _ in range(2):  # one that a program has killed is replaced
            if which not in _NURSERIES:
                _NURSERIES[which] = _nursery(settings, function)
            try:
                socket.send_fds(_NURSERIES[which], [b"+"], files)
                return
            except OSError:
                _NURSERIES.pop(which).close()
        raise EnvironmentFault(f"{function}: its process ends as soon as it is started")


def _nursery(settings: ProgramSettings, function: str) -> socket.socket:
    ours, theirs = socket.socketpair()
    scratch = tempfile.gettempdir()
    with theirs:
        subprocess.Popen(
            [sys.executable, "-P", str(_HERE / "nursery.py"), function],
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
    """Kill the processes of this user that have a key among their environment variables, as far as /proc tells."""
    if not key or not Path("/proc").is_dir():
        return
    mark = f"OPENAI_API_KEY={key}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


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
    code = told["code"]
    reason = f"exit status {code}" if code is None or code >= 0 else f"signal {signal.Signals(-code).name}"
    lines = [line.strip() for line in told["errors"].splitlines() if line.strip()]
    return without_secrets(f"{reason}: {lines[-1][:_MAX_TOLD]}" if lines else reason)
