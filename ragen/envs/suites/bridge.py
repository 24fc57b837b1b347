"""Asynchronous packages, waited for: one loop in a thread of its own, whatever loop the caller runs in.

coroutine -> `finished` -> its result        coroutine -> `begun`
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def finished(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Wait for a coroutine.

    Args:
        work: Not begun.
        timeout_s: Most seconds it may take.

    Raises:
        TimeoutError: If it takes longer; it is cancelled then.
    """
    future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), _loop())
    return future.result()


def begun(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Have a coroutine done, and wait for nothing.

    Args:
        work: Makes it.
    """
    asyncio.run_coroutine_threadsafe(work(), _loop())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="suites", daemon=True).start()
    return loop
