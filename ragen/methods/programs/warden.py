"""Wardens of programs: each starts one program, limits it, and ends it with all that it started.

    python warden.py [module:function]     standard input: a socket over which `process` sends the files of an episode

For every episode a warden is forked, and from that the program: a command, or a call of the function. This is imported
once, which takes seconds for an agent framework; a fork takes some milliseconds. A warden no longer needs the process
that forked it. What the function returns becomes the last line of the output: a number, `(reward, success)`, or a
dictionary; None: nothing.

Run as a file, with the standard library alone. Every descendant of the program remains a descendant of its warden (a
subreaper, on Linux), so nothing outlives it, whatever sessions and groups it made. Only a program that kills its warden
gets away.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHUNK = 1 << 16
_LOOK_S = 1.0
_GIVE_UP_S = 10.0
_CANNOT_START = 127
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

Become = Callable[[dict[str, Any]], None]
"""Turns a process into the program of a specification; does not return."""


def main() -> None:
    """For every message with three files (control, report, task), fork a warden."""
    channel = socket.socket(fileno=os.dup(0))
    become = _execute
    if len(sys.argv) > 1:
        become = _call
        with suppress(BaseException):  # what cannot be imported fails again in every program, which reports it
            _imported(sys.argv[1])
    gc.freeze()  # the garbage collector would copy the pages that forks share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # wardens are reaped by the system
    while True:
        message, files, _, _ = socket.recv_fds(channel, 1, 3)
        if not message:
            return
        with suppress(OSError):  # where no process can be forked, the parent sees the files closed
            if os.fork() == 0:
                try:
                    channel.close()
                    _serve(files, become)
                finally:
                    os._exit(0)
        for file in files:
            os.close(file)


def _serve(files: list[int], become: Become) -> None:
    """Watch over one program.

    Args:
        files: Control, a socket that closes when the parent wants the program to end, or has ended, and that is told
            the process id; report, a file that holds the specification and receives the report (`_watch`); task, the
            program's standard input.
        become: Starts it.
    """
    control, report, task = files
    os.setsid()
    with suppress(OSError):  # a parent that is gone finds its scratch folder removed all the same
        os.write(control, str(os.getpid()).encode())
    os.dup2(control, 0)
    os.close(control)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with open(report, "r+", closefd=False) as file:
        spec = json.load(file)
        file.seek(0)
        file.truncate()
        try:
            os.mkdir(spec["scratch"], 0o700)  # noqa: PTH102 (here, so that no folder is without a warden)
            outcome = _watch(spec, report, task, become)
        except OSError as failure:
            outcome = {"status": "died", "code": _CANNOT_START, "output": "", "errors": f"cannot be started: {failure}"}
        json.dump(outcome, file)
    remove_tree(spec["scratch"])  # here, since the parent may be busy with other programs, or gone


def remove_tree(folder: str) -> None:
    """Remove a folder with all in it, whatever the depth and the modes in it; nothing happens if it is gone.

    No link is followed, and nothing outside is changed. Something else in its place, such as a link, is unlinked. What
    cannot be removed, and what is left after `_GIVE_UP_S` seconds, stays.
    """
    give_up_at = time.monotonic() + _GIVE_UP_S
    with suppress(OSError):
        os.unlink(folder)  # noqa: PTH108 (pathlib takes long to import)
        return
    with suppress(OSError):
        _unlock(folder)
        top = os.open(folder, _FOLDER)
        try:
            _empty(top, give_up_at)
        finally:
            os.close(top)
        os.rmdir(folder)  # noqa: PTH106


def _empty(top: int, give_up_at: float) -> None:
    """Empty an open folder.

    Folders at any depth are moved to its top to be emptied there: neither recursion nor open files nor the length of
    paths limit the depth.
    """
    unique, number = os.urandom(8).hex(), 0
    folders = _without_files(top, give_up_at)
    while folders:
        name = folders.pop()
        with suppress(OSError):
            _unlock(name, top)
            folder = os.open(name, _FOLDER, dir_fd=top)
            try:
                for inner in _without_files(folder, give_up_at):
                    number += 1
                    with suppress(OSError):
                        _unlock(inner, folder)  # to be moved, it must be writable too
                        os.rename(inner, f"{unique}-{number}", src_dir_fd=folder, dst_dir_fd=top)
                        folders.append(f"{unique}-{number}")
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _without_files(folder: int, give_up_at: float) -> list[str]:
    """Unlink all in an open folder but the folders, and return their names; none once it is time to give up."""
    folders = []
    for name in os.listdir(folder):
        if time.monotonic() > give_up_at:
            return []
        try:
            os.unlink(name, dir_fd=folder)
        except OSError:
            folders.append(name)
    return folders


def _unlock(name: str, parent: int | None = None) -> None:
    """Give this user the rights to empty and to move a folder; a link's target is left as it is."""
    with suppress(OSError, NotImplementedError, ValueError):  # the latter two: a link, or a system that cannot
        os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)


class ProgramOutput:
    """What a program writes: the number of bytes, and the end of each stream."""

    def __init__(self, streams: tuple[int, int], kept_bytes: int) -> None:
        self.open = list(streams)
        self.num_bytes = 0
        self.ends = dict.fromkeys(streams, b"")
        self._kept_bytes = kept_bytes

    def read(self, stream: int) -> bool:
        """Read what is there; whether there was something."""
        try:
            chunk = os.read(stream, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.open.remove(stream)
        self.num_bytes += len(chunk)
        self.ends[stream] = (self.ends[stream] + chunk)[-self._kept_bytes :]
        return bool(chunk)


def _watch(spec: dict[str, Any], report: int, task: int, become: Become) -> dict[str, Any]:
    """Run the program to its end, or end it.

    Args:
        spec: `command`, `environment`, `scratch` (its working folder, which exists), `time_limit_s`,
            `max_output_bytes`, `kept_bytes` (the end of each stream to report).
        report: A file that the program does not inherit.
        task: Its standard input.
        become: Starts it in a child.

    Returns:
        `status`: 'done', 'died', 'hung', 'flooded' or 'ended' (the parent wants it, or is gone); `code`: exit status,
        negative for a signal, None if it did not end by itself; `output`, `errors`: ends of its two streams.
    """
    stop_at = time.monotonic() + spec["time_limit_s"]
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    outs, errors = os.pipe(), os.pipe()
    program = os.fork()
    if program == 0:
        _begin(spec, become, (task, outs[1], errors[1]), (report, woken, wake, outs[0], errors[0]))
    os.close(outs[1])
    os.close(errors[1])
    output = ProgramOutput((outs[0], errors[0]), spec["kept_bytes"])
    for stream in output.open:
        os.set_blocking(stream, False)
    status, code = "", None
    try:
        while not status:
            left_s = stop_at - time.monotonic()
            ready, _, _ = select.select([0, woken, *output.open], [], [], max(0.0, min(left_s, _LOOK_S)))
            for stream in [stream for stream in ready if stream in output.open]:
                output.read(stream)
            if woken in ready:
                os.read(woken, _CHUNK)
            code = _reap(program)
            if 0 in ready:
                status = "ended"
            elif output.num_bytes > spec["max_output_bytes"]:
                status = "flooded"
            elif code is not None:
                status = "done" if code == 0 else "died"
            elif left_s <= 0:
                status = "hung"
    finally:
        _end_all(program)
    for stream in list(output.open):
        while output.num_bytes <= spec["max_output_bytes"] and output.read(stream):
            pass
    if status in ("done", "died") and output.num_bytes > spec["max_output_bytes"]:
        status = "flooded"
    output_text, error_text = (output.ends[stream].decode("utf-8", "replace") for stream in (outs[0], errors[0]))
    return {"status": status, "code": code, "output": output_text, "errors": error_text}


def _begin(spec: dict[str, Any], become: Become, standard: tuple[int, ...], others: tuple[int, ...]) -> None:
    """In the child: become the program, in a session of its own, with these three standard files."""
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for one in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGTERM, signal.SIGXFSZ):
            signal.signal(one, signal.SIG_DFL)
        for number, file in enumerate(standard):
            os.dup2(file, number)
        for file in (*standard, *others):
            os.close(file)
        os.chdir(spec["scratch"])
        os.environ.clear()
        os.environ.update(spec["environment"])
        become(spec)
    except (OSError, ValueError) as failure:  # ValueError: a null byte
        reason = getattr(failure, "strerror", None) or failure
        name = spec["command"] if isinstance(spec["command"], str) else spec["command"][0]
        os.write(2, f"{name} cannot be started: {reason}\n".encode(errors="replace"))
    finally:
        os._exit(_CANNOT_START)


def _execute(spec: dict[str, Any]) -> None:
    os.execv(spec["command"][0], spec["command"])


def _imported(target: str) -> Callable[[Any], Any]:
    module, _, name = target.partition(":")
    function: Callable[[Any], Any] = getattr(import_module(module), name)
    return function


def _call(spec: dict[str, Any]) -> None:
    """Call the function in the program's process."""
    code = 1
    try:
        function = _imported(spec["command"])
        if "tempfile" in sys.modules:
            sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]
        if "numpy" in sys.modules:  # forks share the state of its generator; that of `random` is renewed by Python
            sys.modules["numpy"].random.seed()
        made = function(json.load(sys.stdin))
        if isinstance(made, tuple) and len(made) == 2:
            made = {"reward": made[0], "success": made[1]}
        elif made is not None and not isinstance(made, dict):
            made = {"reward": made}
        if made is not None:
            sys.stdout.write(f"\n{json.dumps(made)}\n")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)  # noqa: T201
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 1
        os._exit(code)


def _reap(program: int) -> int | None:
    """Collect what has ended; the exit status of the program if it is among it."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == program:
            code = os.waitstatus_to_exitcode(status)


def _end_all(program: int) -> None:
    """Kill all descendants. Those of a killed process become children of this one, until there are none."""
    give_up_at = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < give_up_at:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in _children() or (-program,):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _children() -> list[int]:
    """Return the children of this process; empty if the system does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listed:  # noqa: PTH123 (pathlib takes long to import)
            return [int(pid) for pid in listed.read().split()]
    except OSError:
        return []


def _prctl(option: int, value: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Linux alone has it
        prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
