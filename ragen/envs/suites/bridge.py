"""Synchronous calls into asynchronous packages: one event loop in its own thread, regardless of the caller's loop.

coroutine -> `finished` -> its result        coroutine -> `begun`
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def finished(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Run a coroutine and return its result.

    Args:
        work: A coroutine that has not been started.
        timeout_s: Timeout in seconds.

    Raises:
        TimeoutError: If it takes longer; the coroutine is then cancelled.
    """
    future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), _loop())
    return future.result()


def begun(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Start a coroutine without waiting for it.

    Args:
        work: Factory of the coroutine.
    """
    asyncio.run_coroutine_threadsafe(work(), _loop())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="suites", daemon=True).start()
    return loop
