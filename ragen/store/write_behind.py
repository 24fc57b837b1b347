"""What a run does not wait for: one thread validates its tables, another writes all, in the order of asking.

    stage -> Store.put_table_soon -> validation -> queue -> thread -> artifact -> record of the run
                                         `-> the next stage reads the table from memory

Whoever reads a table waits until it is validated, so nobody ever sees data that nobody has looked at. The order makes
it safe: an artifact comes into the store after those that it was made from, and a run's record after what it names, so
a killed run leaves what a slower one would have left. A write that fails stays the first of the queue: whoever asks for
another one, or waits, does it again in its own thread, where errors are raised, and retried. Data that break their
contract are put into quarantine once, and are what everybody who comes after is told of.
"""

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import pyarrow as pa

from ragen.errors import DataError, StarPOError

MAX_WAITING = 32
"""Writes that wait at most, about three iterations of a run; whoever asks for more does those first."""

_NICENESS = 19
"""The thread works in the gaps that a stage leaves on the processors."""

_SWITCH_INTERVAL_S = 1e-3
"""How long the thread may keep Python's lock once a stage wants it back. Python's own 5 ms are an eternity for a stage
that gives the lock away at every tensor operation; with less than this the lock's own way back and forth adds up."""

_CURRENT: "ContextVar[WriteBehind | None]" = ContextVar("write_behind", default=None)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Write:
    """One write.

    Attributes:
        do: Carries it out. May be called again after an error.
        artifact: Kind and key of what it puts into the store; None: it is no artifact.
        table: The rows, where it is a dataset, as soon as they are validated; none if they break their contract.
        folder: A local folder with the artifact's files, where it is none.
    """

    do: Callable[[], object]
    artifact: tuple[str, str] | None = None
    table: Future[pa.Table | None] | None = None
    folder: str | None = None


class WriteBehind:
    """The queue of one run. May be used by many threads.

    Attributes:
        url: The store that is written to.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._writes: deque[Write] = deque()
        self._artifacts: dict[tuple[str, str], Write] = {}
        self._is_writing = threading.Lock()
        self._has_failed = False
        self._violation: DataError | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write-behind", initializer=_step_back)
        self._validator = ThreadPoolExecutor(1, thread_name_prefix="validate")

    def validate(self, call: Callable[[], pa.Table | None]) -> Future[pa.Table | None]:
        """Have rows validated, after those that were given before."""
        return self._validator.submit(call)

    def submit(self, write: Write) -> None:
        """Have something written after all that was asked for before.

        Raises:
            StoreError: If an earlier write failed, and has failed again.
            DataError: If data that were put earlier break their contract.
        """
        if self._has_failed or len(self._writes) >= MAX_WAITING:
            self.drain()
        if write.artifact is not None:
            self._artifacts[write.artifact] = write
        self._writes.append(write)
        self._thread.submit(self._work)

    def find(self, kind: str, key: str) -> Write | None:
        """The write of this artifact; None: it is not waiting."""
        return self._artifacts.get((kind, key))

    def wait_for(self, kind: str, key: str) -> None:
        """Go on when this artifact is stored, if it was waiting.

        Raises:
            StoreError: If it cannot be.
            DataError: If it breaks its contract, or what was put before it does.
        """
        while (kind, key) in self._artifacts:
            self._write_first(unless_stored=(kind, key))

    def drain(self) -> None:
        """Go on when all is written.

        Raises:
            StoreError: If something cannot be.
            DataError: If something breaks its contract.
        """
        while self._writes:
            self._write_first()

    def close(self) -> None:
        """Write what can be written still, and end the thread; nothing is raised."""
        try:
            if not self._has_failed:
                self.drain()
        except (StarPOError, OSError) as error:
            _log.warning("%s", error)
        if self._writes:
            _log.warning("results not stored: %d; the run computes them again when it goes on", len(self._artifacts))
        self._writes.clear()
        self._thread.shutdown(wait=True)
        self._validator.shutdown(wait=True)

    def _work(self) -> None:
        if self._has_failed:
            return
        try:
            self._write_first()
        except Exception as error:  # raised again where it can be handled, if it happens again
            _log.info("a write will be tried again: %s", error)

    def _write_first(self, unless_stored: tuple[str, str] | None = None) -> None:
        with self._is_writing:
            if unless_stored is not None and unless_stored not in self._artifacts:
                return
            if self._violation is not None:  # which doing it again would put into quarantine again
                raise self._violation
            if not self._writes:
                return
            write = self._writes[0]
            try:
                write.do()
            except BaseException as error:
                self._has_failed = True
                self._violation = error if isinstance(error, DataError) else None
                raise
            self._has_failed = False
            if write.artifact is not None:
                del self._artifacts[write.artifact]
            self._writes.popleft()


def current() -> WriteBehind | None:
    """The queue of the run that is asking; None: there is none."""
    return _CURRENT.get()


@contextmanager
def writing_behind(url: str) -> Iterator[WriteBehind]:
    """Inside, in this thread and in tasks begun from it, a store's `put_..._soon` do not wait for the store.

    Args:
        url: The store's address, as `Store.url` has it.

    Yields:
        The queue; `drain` it before saying that all is done.
    """
    behind = WriteBehind(url)
    token = _CURRENT.set(behind)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield behind
    finally:
        _CURRENT.reset(token)
        behind.close()
        sys.setswitchinterval(interval_s)


def _step_back() -> None:
    if sys.platform == "linux":  # where threads have a priority of their own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
