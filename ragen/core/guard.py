"""`guarded`: calls of third-party code leave this process as it was, and do not hang unnoticed.

    with guarded(is_timed=True): environment.step(action)

An environment that sets torch's default dtype, switches gradients off, changes the umask or the working folder would
change results, or break stages, far from its own code. In a process that plays shards for another one (`end_if_hung`),
a call that takes too long ends the process, even in native code; in any other, `longest_call_s` tells who waits for it.
"""

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

FOREIGN = (Exception, SystemExit)
"""What third-party code may raise: `sys.exit` in it must not end this process, in silence and with success."""

_TORCH = {
    "get_default_dtype": "set_default_dtype",
    "is_grad_enabled": "set_grad_enabled",
    "get_num_threads": "set_num_threads",
    "get_float32_matmul_precision": "set_float32_matmul_precision",
    "get_deterministic_debug_mode": "set_deterministic_debug_mode",
}
"""Function of torch that reads a setting -> the one that writes it."""
_UMASK = os.umask(0o077)  # it can only be read by setting it, which other threads would notice later
os.umask(_UMASK)
_started: dict[int, float] = {}
_limit_s: float | None = None


class _Interrupted(BaseException):
    """Raised in a call that hangs; no one on its way takes it for an error of the environment."""


@contextmanager
def guarded(is_timed: bool = False) -> Iterator[None]:
    """Context manager around third-party code.

    Args:
        is_timed: Whether it is one call, which may not hang; not nested in another such call.
    """
    torch = sys.modules.get("torch")
    before = _torch_settings(torch)
    folder = _folder()
    thread = threading.get_ident()
    if is_timed:
        _started[thread] = time.monotonic()
    if is_timed and _limit_s is not None:
        signal.setitimer(signal.ITIMER_REAL, _limit_s)
    try:
        yield
    finally:
        if is_timed and _limit_s is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if is_timed:
            _started.pop(thread, None)
        if torch is None and hasattr(sys.modules.get("torch"), "set_grad_enabled"):  # the call has imported it
            torch = sys.modules["torch"]
            before = {"get_default_dtype": torch.float32, "is_grad_enabled": True}
        for name, value in before.items():
            if getattr(torch, name)() != value:
                getattr(torch, _TORCH[name])(value)
        os.umask(_UMASK)
        if folder is not None and _folder() != folder:
            with suppress(OSError):
                os.chdir(folder)


def end_if_hung(limit_s: float) -> None:
    """From now on, end this process by SIGALRM if a timed call takes longer; its stack goes to standard error."""
    global _limit_s
    faulthandler.register(signal.SIGALRM, chain=True)
    _limit_s = limit_s


def longest_call_s() -> float:
    """Return how long the longest timed call in progress has taken, in seconds; 0 without any."""
    return max((time.monotonic() - started for started in list(_started.values())), default=0.0)


def interrupt_calls() -> None:
    """End the threads of the timed calls in progress, once they return from native code."""
    for thread in list(_started):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Interrupted))


def _torch_settings(torch: Any) -> dict[str, Any]:
    return {} if torch is None else {name: getattr(torch, name)() for name in _TORCH if hasattr(torch, name)}


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 (Path.cwd takes 25 times as long, and this runs twice a step)
    except OSError:
        return None
