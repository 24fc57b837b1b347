"""`guarded`: calls of third-party code leave this process as it was, and do not hang unnoticed.

    with guarded("environment 'mine'", limit): environment.step(action)

An environment that sets torch's default dtype, switches gradients off, changes the umask or the working folder would
change results, or break stages, far from its own code. A call with a name that takes `SLOW_S` seconds is logged, and
told to who listens (`tell_of_slow_calls`). After its limit it is interrupted: in the main thread, also while it waits;
in another one, once it runs Python code, and `overdue_call` tells who waits for it. What stays in native code is named,
but not ended; in a process that plays shards for another one (`end_if_hung`), it ends the process.
"""

import ctypes
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from starpo.ragen.core.errors import CallLimitError

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
SLOW_S = 20.0
"""Time after which a call is reported."""
_AGAIN_S = 1.0
"""How often calls are looked at, and how long one that was interrupted has to end before it is interrupted again."""
_LATE_S = 5.0
"""Time after its limit in which a call of another thread may be ended by who waits for it."""
_SOON_S = 0.001
_limit_s: float | None = None
_listeners: list[Callable[[str], None]] = []
_log = logging.getLogger(__name__)


class _Interrupted(BaseException):
    """Raised in a call that hangs; no one on its way takes it for an error of the environment."""


@dataclass(frozen=True)
class Limit:
    """How long a call may take.

    Attributes:
        seconds: The limit.
        setting: The environment variable that sets it.
    """

    seconds: float
    setting: str


@dataclass(eq=False)
class TimedCall:
    """A call in progress.

    Attributes:
        name: What is called.
        limit: Its limit; None if it has none.
        is_slow: Whether it has been reported.
    """

    name: str
    limit: Limit | None
    is_slow: bool = False
    _began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Time since it began."""
        return time.monotonic() - self._began

    @property
    def text(self) -> str:
        """How long it has taken, and may take."""
        limit = "" if self.limit is None else f"; its limit is {self.limit.seconds:g} s ({self.limit.setting})"
        return f"{self.name} has not returned for {self.seconds:.0f} s{limit}"

    @property
    def late_s(self) -> float:
        """Time since its limit; negative before."""
        return -1.0 if self.limit is None else self.seconds - self.limit.seconds


_calls: dict[int, TimedCall] = {}
_watcher: threading.Thread | None = None


@contextmanager
def guarded(name: str = "", limit: Limit | None = None) -> Iterator[None]:
    """Context manager around third-party code.

    Args:
        name: What is called, for messages, such as "filter 'mine:keep'"; empty if it is not one call. A call within
            another one with a name counts as part of that.
        limit: How long it may take; None: as long as it likes.

    Raises:
        CallLimitError: If it took longer.
    """
    torch = sys.modules.get("torch")
    before = _torch_settings(torch)
    folder = _folder()
    is_timed = bool(name) and threading.get_ident() not in _calls
    try:
        with _timed(TimedCall(name, limit)) if is_timed else nullcontext():
            yield
    finally:
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


@contextmanager
def _timed(call: TimedCall) -> Iterator[None]:
    thread, limit = threading.get_ident(), call.limit
    is_main = thread == threading.main_thread().ident and limit is not None and _limit_s is None
    handler, timer = signal.getsignal(signal.SIGALRM), (0.0, 0.0)

    def interrupt(*_: object) -> None:
        if _calls.get(thread) is call:
            raise _Interrupted

    _calls[thread] = call
    _watch()
    try:
        if _limit_s is not None:
            signal.setitimer(signal.ITIMER_REAL, _limit_s)
        elif is_main and limit is not None:
            signal.signal(signal.SIGALRM, interrupt)
            timer = signal.setitimer(signal.ITIMER_REAL, limit.seconds, _AGAIN_S)
        yield
    except _Interrupted as error:
        if limit is None:
            raise
        raise CallLimitError(
            f"{call.name} took longer than {limit.seconds:g} s. Mend it, or raise {limit.setting}"
        ) from error
    finally:
        _calls.pop(thread, None)
        if _limit_s is not None or is_main:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if is_main:
            signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
        if timer[0]:  # another's
            signal.setitimer(signal.ITIMER_REAL, max(_SOON_S, timer[0] - call.seconds), timer[1])
        if call.is_slow:
            _tell("")


def tell_of_slow_calls(listener: Callable[[str], None]) -> Callable[[], None]:
    """Have a function called, in another thread, with a sentence on a call that takes long, and '' once it returns.

    Returns:
        A function that ends this.
    """
    _listeners.append(listener)
    return lambda: _listeners.remove(listener) if listener in _listeners else None


def end_if_hung(limit_s: float) -> None:
    """From now on, end this process by SIGALRM if a timed call takes longer; its stack goes to standard error."""
    global _limit_s
    faulthandler.register(signal.SIGALRM, chain=True)
    _limit_s = limit_s


def overdue_call() -> TimedCall | None:
    """Return the call in progress in another thread than the main one that is furthest beyond its limit."""
    others = [call for thread, call in list(_calls.items()) if thread != threading.main_thread().ident]
    return max((call for call in others if call.late_s > 0), key=lambda call: call.late_s, default=None)


def interrupt_overdue_calls(late_s: float = 0.0) -> None:
    """End the calls of other threads that are this far beyond their limits, once they return from native code."""
    for thread, call in list(_calls.items()):
        if call.late_s > late_s and thread != threading.main_thread().ident:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Interrupted))


def _watch() -> None:
    """Look at the calls in progress from now on, in a thread; a fork has none."""
    global _watcher
    if _watcher is None or not _watcher.is_alive():
        _watcher = threading.Thread(target=_look, name="slow-calls", daemon=True)
        _watcher.start()


def _look() -> None:
    while True:
        time.sleep(min(_AGAIN_S, SLOW_S))
        for call in list(_calls.values()):
            if call.seconds > SLOW_S and not call.is_slow:
                call.is_slow = True
                _log.warning("%s", call.text)
                _tell(call.text)
        interrupt_overdue_calls(_LATE_S)


def _tell(text: str) -> None:
    for listener in list(_listeners):
        listener(text)


def _torch_settings(torch: Any) -> dict[str, Any]:
    return {} if torch is None else {name: getattr(torch, name)() for name in _TORCH if hasattr(torch, name)}


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 (Path.cwd takes 25 times as long, and this runs twice a step)
    except OSError:
        return None
