"""One program: started with a clean environment in a scratch folder, limited, and ended with all that it started.

    settings, task, address, key -> RunningProgram -> fork server -> warden -> program        poll -> Ended

Whatever a program does to its warden or to the fork server, it ends in time, and others are played all the same. Not a
sandbox: the program has the rights of this user, its files and its network. See `warden` for the limits.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Literal

import psutil
from pydantic import BaseModel, ConfigDict

from starpo.ragen.core.errors import EnvironmentFault, StarPOError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.sources import find
from starpo.ragen.methods.programs.fork_server import KILLED_S, NO_SERVER, environment_of, fork_warden, search_path
from starpo.ragen.methods.programs.settings import MODEL, PLACEHOLDER, ProgramSettings
from starpo.ragen.methods.programs.tasks import as_json
from starpo.ragen.methods.programs.warden import remove_tree

KEPT_BYTES = 1 << 16
"""Bytes of the end of each stream that are kept."""
_MAX_VARIABLE = 100_000
"""Linux allows a variable 128 KiB; a longer task is on standard input alone."""
_MAX_TOLD = 300
_MAX_REPORT_BYTES = 16 * KEPT_BYTES
"""More than the ends of both streams take as JSON."""
_END_S = 15.0
"""Time in which a warden must have ended its program and removed the scratch folder."""
LATE_S = 30.0
"""Time after its limit in which a program must have been ended by its warden."""
STUCK_S = 1.0
"""How long a program waits for its warden before the state of the fork server is looked at."""
_MAX_STARTS = 3
"""How often a program is started whose fork server ends before it has forked its warden."""


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


class _Report(BaseModel):
    """What a warden reports (`warden._watch`)."""

    model_config = ConfigDict(strict=True)

    status: Literal["done", "died", "hung", "flooded", "ended"]
    code: int | None
    output: str
    errors: str


_FROM_OUTSIDE = "it was ended from outside"


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
            EnvironmentFault: If the command cannot be found, or nothing can be started.
            OSError: If files or processes are exhausted.
        """
        given, values, variables = _encodable(task), {}, {}
        if command is None:
            values = {"task": given, "base_url": base_url, "api_key": key, "model": MODEL}
            variables = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key, "OPENAI_MODEL": MODEL}
            if len(given.encode()) <= _MAX_VARIABLE:
                variables["STARPO_TASK"] = given
        words = words_of(command or settings.command, values)
        self._settings = settings
        self._function = words if isinstance(words, str) else ""
        self._task = given.encode()
        self._ended: Ended | None = None
        self._num_starts = 0
        self._look_at = 0.0
        self._give_up_at = self._latest_end()
        self._files = contextlib.ExitStack()
        self._scratch = ""
        self._marks = {key} - {""}
        self._variables = variables
        self._spec = {
            "command": words,
            "time_limit_s": settings.time_limit_s,
            "max_output_bytes": settings.max_output_bytes,
            "kept_bytes": KEPT_BYTES,
        }
        try:
            self._start()
        except BaseException:
            self._files.close()
            raise

    def poll(self) -> Ended | None:
        """Return how it ended; None while it runs. At its limit it has ended, whatever it did; nothing is raised."""
        if self._ended is not None:
            return self._ended
        is_over, now = self._is_over(0.0), time.monotonic()
        if is_over and self._warden:
            self._finish(self._read_report())
        elif now > self._give_up_at:
            self._finish(self._end_by_force() if self._warden else self._not_started())
        elif is_over:
            self._start_again()
        elif not self._warden and now > self._look_at:
            self._look_at = now + STUCK_S
            self._server.kill_if_stopped()
            if self._server.has_ended:
                self._start_again()
        return self._ended

    def wait(self, unwanted: Event | None = None) -> Ended:
        """Wait until it has ended; its time limit bounds this.

        Args:
            unwanted: It is killed once this is set, as nothing that it would give is needed any more.
        """
        while (ended := self.poll()) is None:
            if unwanted is not None and unwanted.is_set():
                self.kill()
            else:
                self._is_over(min(1.0, STUCK_S))
        return ended

    def kill(self) -> None:
        """End it and all that it started; nothing happens if it has ended."""
        if self._ended is not None:
            return
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        is_over = self._is_over(0.0)
        if self._warden:
            self._signal(signal.SIGCONT)  # a program may have stopped it
            self._finish(self._read_report() if is_over or self._is_over(_END_S) else self._end_by_force())
        else:  # a warden that is yet to be forked will find that it is to end; a stopped process must not stay
            self._finish(Ended("died", _FROM_OUTSIDE, ""))
            self._server.kill_if_stopped()

    def _start(self) -> None:
        """Have its warden forked, by a fork server that is started if need be.

        Raises:
            EnvironmentFault, OSError: If that is not possible.
        """
        self._files.close()
        self._scratch = str(Path(tempfile.gettempdir(), f"ragen-program-{secrets.token_hex(8)}").absolute())
        self._marks.add(self._scratch)
        environment = {**environment_of(self._settings, self._scratch), **self._variables}
        spec = {**self._spec, "environment": environment, "scratch": self._scratch}
        self._report = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (closed with the others)
        self._control, theirs = socket.socketpair()
        self._files.enter_context(self._control)
        self._report.write(json.dumps(spec).encode())
        self._report.seek(0)
        self._warden = 0
        self._num_starts += 1
        with theirs, tempfile.TemporaryFile() as standard_input:
            standard_input.write(self._task)
            standard_input.seek(0)
            files = [theirs.fileno(), self._report.fileno(), standard_input.fileno()]
            self._server = fork_warden(self._settings, self._function, files)
        self._look_at = time.monotonic() + STUCK_S

    def _start_again(self) -> None:
        if self._num_starts == _MAX_STARTS:
            self._finish(Ended("died", f"{self._server.name}: {NO_SERVER}, {_MAX_STARTS} times", ""))
            return
        try:
            self._start()
        except (StarPOError, OSError) as error:
            self._finish(Ended("died", f"it could not be started again: {error}", ""))

    def _not_started(self) -> Ended:
        """Give up waiting for the fork server, which others start anew."""
        self._server.kill()
        limit_s = self._settings.time_limit_s + LATE_S
        slow = f": is '{self._function}' slow to import?" if self._function else ""
        return Ended("hung", f"not started within {limit_s:g} s (environment.time_limit_s + {LATE_S:g}){slow}", "")

    def _end_by_force(self) -> Ended:
        """End it together with its warden, which does not react."""
        self._signal(signal.SIGKILL)
        self._is_over(KILLED_S)
        return self._read_report()

    def _finish(self, ended: Ended) -> None:
        self._ended = ended
        self._files.close()
        remove_tree(self._scratch)

    def _latest_end(self) -> float:
        return time.monotonic() + self._settings.time_limit_s + LATE_S

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError, OverflowError):
            os.kill(self._warden, number)

    def _is_over(self, timeout_s: float) -> bool:
        """Wait for the end of the warden, which holds the other end of the socket, and writes its process id to it."""
        self._control.settimeout(timeout_s)
        try:
            while written := self._control.recv(32):
                if not self._warden and written.isdigit() and int(written) > 1:
                    self._warden, self._give_up_at = int(written), self._latest_end()
            return True
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            return True

    def _read_report(self) -> Ended:
        """Read the report of a warden that has ended. A program can reach the file, and may write anything."""
        try:
            self._report.seek(0)
            report = _Report.model_validate_json(self._report.read(_MAX_REPORT_BYTES))
        except (OSError, ValueError):  # its warden was killed, by nobody but a program or an administrator
            kill_holders(self._marks)
            return Ended("died", "its warden was killed", "")
        settings, output = self._settings, report.output[-KEPT_BYTES:]
        match report.status:
            case "done":
                return Ended("done", "", output)
            case "hung":
                return Ended(
                    "hung", f"still running after {settings.time_limit_s:g} s (environment.time_limit_s)", output
                )
            case "flooded":
                limit = f"{settings.max_output_bytes:,} bytes of output (environment.max_output_bytes)"
                return Ended("flooded", f"more than {limit}", output)
            case "ended":
                return Ended("died", _FROM_OUTSIDE, output)
            case "died":
                return Ended("died", _cause_of_death(report), output)


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
    words = [PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), word) for word in command]
    program = None if "\0" in words[0] else shutil.which(words[0], path=search_path())
    if program is None:
        raise EnvironmentFault(
            f"the command '{words[0]}' is not found here, or is not executable; give its path, or extend PATH"
        )
    return [str(Path(program).absolute()), *map(_absolute, words[1:])]


def kill_holders(marks: set[str]) -> None:
    """Kill the processes of this user with one of these values, such as a key, among their environment variables."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and not marks.isdisjoint(process.environ().values()):
                process.kill()


def _encodable(task: Mapping[str, Any]) -> str:
    """Return a task as JSON; escaped where a text holds half of a surrogate pair, which no encoding has."""
    text = as_json(task)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(task)
    return text


def _absolute(word: str) -> str:
    try:
        return str(Path(word).absolute()) if Path(word).exists() else word
    except (ValueError, OSError):  # a null byte; a name that is too long
        return word


def _cause_of_death(report: _Report) -> str:
    code = report.code or 0
    names = {one.value: one.name for one in signal.Signals}  # those of real time have none
    reason = f"exit status {code}" if code >= 0 else f"signal {names.get(-code, -code)}"
    lines = [line.strip() for line in report.errors.splitlines() if line.strip()]
    return f"{reason}: {without_secrets(lines[-1])[:_MAX_TOLD]}" if lines else reason
