"""One program: started with a clean environment in a scratch folder, limited, and ended with all that it started.

    settings, task, address, key -> RunningProgram -> poll -> Ended

Not a sandbox: the program has the rights of this user, its files and its network. See `warden` for the limits.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
        self._begin(command_of(settings.command, values), settings, values["task"], told)

    @classmethod
    def of_command(cls, command: Sequence[str], settings: ProgramSettings, given: str) -> "RunningProgram":
        """Start another command under the same limits, without an endpoint.

        Args:
            command: Its words.
            settings: Limits, and the variables to inherit.
            given: Its standard input.
        """
        program = cls.__new__(cls)
        program._begin(command_of(list(command), {}), settings, given, {})
        return program

    def _begin(self, command: list[str], settings: ProgramSettings, given: str, told: Mapping[str, str]) -> None:
        self._began = time.monotonic()
        self._ended: Ended | None = None
        self._key = told.get("OPENAI_API_KEY", "")
        self._settings = settings
        self._scratch = tempfile.mkdtemp(prefix="ragen-program-")
        self._report: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        with tempfile.TemporaryFile() as task:
            task.write(given.encode("utf-8", "surrogatepass"))
            task.seek(0)
            spec = {
                "command": command,
                "scratch": self._scratch,
                "task_fd": task.fileno(),
                "time_limit_s": settings.time_limit_s,
                "max_output_bytes": settings.max_output_bytes,
                "kept_bytes": KEPT_BYTES,
            }
            try:
                self._warden = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_HERE / "warden.py"), json.dumps(spec)],
                    stdin=subprocess.PIPE,
                    stdout=self._report,
                    stderr=subprocess.DEVNULL,
                    env={**environment_of(settings, self._scratch), **told},
                    pass_fds=(task.fileno(),),
                    start_new_session=True,
                )
            except OSError as error:
                self._clean_up()
                raise EnvironmentFault(
                    f"{command[0]} cannot be started: {error.strerror or error} (its words have "
                    f"{sum(map(len, command)):,} characters; a long task belongs on standard input)"
                ) from error

    def poll(self) -> Ended | None:
        """Return how it ended; None while it runs."""
        if self._ended is None and self._warden.poll() is not None:
            self._ended = self._read_report()
            self._clean_up()
        return self._ended

    def wait(self) -> Ended:
        """Wait until it has ended; its time limit bounds this."""
        self._warden.wait()
        ended = self.poll()
        assert ended is not None
        return ended

    def kill(self) -> None:
        """End it and all that it started; nothing happens if it has ended."""
        if self._ended is not None:
            return
        assert self._warden.stdin is not None
        with contextlib.suppress(OSError):
            self._warden.stdin.close()
        try:
            self._warden.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._warden.kill()
            self._warden.wait()
        self.poll()

    def _read_report(self) -> Ended:
        seconds = time.monotonic() - self._began
        self._report.seek(0)
        try:
            told = json.loads(self._report.read())
        except ValueError:  # its warden was killed: it can have been nobody but the program, or an administrator
            kill_holders(self._key)
            return Ended("died", f"its warden was killed (exit status {self._warden.returncode})", seconds, "")
        status, settings = told["status"], self._settings
        detail = {
            "done": "",
            "hung": f"still running after {settings.time_limit_s:g} s (environment.time_limit_s)",
            "flooded": f"more than {settings.max_output_bytes:,} bytes of output (environment.max_output_bytes)",
            "ended": "it was ended from outside",
        }.get(status) or _told_of_death(told)
        detail = "" if status == "done" else detail
        return Ended("died" if status == "ended" else status, detail, seconds, told["output"])

    def _clean_up(self) -> None:
        self._report.close()
        warden = getattr(self, "_warden", None)
        if warden is not None and warden.stdin is not None:
            with contextlib.suppress(OSError):
                warden.stdin.close()
        shutil.rmtree(self._scratch, onerror=_make_removable)


def command_of(command: str | list[str], values: Mapping[str, str]) -> list[str]:
    """Return the words to start: a function by the runner, names of existing files as absolute paths.

    Args:
        command: `module:function` or words.
        values: Placeholder -> its value.

    Raises:
        EnvironmentFault: If the program or the module cannot be found.
    """
    if isinstance(command, str):
        if find(command.partition(":")[0]) is None:
            raise EnvironmentFault(
                f"{command}: there is no module '{command.partition(':')[0]}'; add its folder to PYTHONPATH where "
                "stages run, or install its package"
            )
        return [sys.executable, "-P", str(_HERE / "runner.py"), command]
    words = [PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word) for word in command]
    program = shutil.which(words[0], path=search_path())
    if program is None:
        raise EnvironmentFault(
            f"the command '{words[0]}' is not found here, or is not executable; give its path, or extend PATH"
        )
    return [str(Path(program).absolute()), *map(_absolute, words[1:])]


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
    """Return where commands are looked for: PATH, then the folder of this Python."""
    return os.pathsep.join(filter(None, (os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent))))


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
