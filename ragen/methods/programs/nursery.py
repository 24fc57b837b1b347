"""The nursery of a function that plays as a program: imports it once, and forks a process for every episode.

    python -P nursery.py module:function     standard input: a socket, over which `process` sends an episode's files

Importing an agent framework takes seconds, a fork some milliseconds. Run as a file by `process`, with the standard
library alone. What the function returns becomes the last line of the output: a number, `(reward, success)`, or a
dictionary; None: nothing.
"""

import gc
import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    """Import the function; for every message with three files (control, report, task), fork a warden of one call."""
    asked = socket.socket(fileno=os.dup(0))
    function = _function(sys.argv[1])
    gc.freeze()  # the garbage collector would copy the pages that forks share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # wardens are reaped by the system
    warden = _warden()
    while True:
        message, files, _, _ = socket.recv_fds(asked, 1, 3)
        if not message:
            return
        if os.fork() == 0:
            _serve(warden, function, files, asked)
        for file in files:
            os.close(file)


def _function(target: str) -> Callable[[Any], Any]:
    """Return the function; if it cannot be imported, one that raises why, since episodes report it."""
    module, _, name = target.partition(":")
    try:
        found: Callable[[Any], Any] = getattr(import_module(module), name)
    except BaseException as error:
        failure = error

        def raise_it(_: Any) -> None:
            raise failure

        return raise_it
    return found


def _warden() -> Any:
    """Import the file next to this one; its folder is not on the path, where its neighbours would hide others."""
    spec = importlib.util.spec_from_file_location("_starpo_warden", Path(__file__).with_name("warden.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _serve(warden: Any, function: Callable[[Any], Any], files: list[int], asked: socket.socket) -> None:
    try:
        asked.close()
        control, report, task = files
        os.setsid()
        os.dup2(control, 0)
        os.close(control)
        warden.serve(report, task, lambda _: _call(function))
    finally:
        os._exit(0)


def _call(function: Callable[[Any], Any]) -> None:
    """Call the function in the program's process."""
    code = 1
    try:
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


if __name__ == "__main__":
    main()
