"""The state that a run writes to the store while it works, for people and for `ragen follow`."""

import logging
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunStatus

_SETTLING_S = 0.05
"""Delay before writing, in seconds: states that follow each other faster are merged into one."""

_log = logging.getLogger(__name__)


class RunProgress:
    """Writer of a run's state, at most about twice per second during a stage.

    A separate thread writes, so no stage waits for the store; of the states set in the meantime only the last is
    written. Thread-safe.
    """

    def __init__(self, store_url: str, run: str) -> None:
        """Prepare the writer; nothing is written yet.

        Args:
            store_url: URL of the store.
            run: The run's name.
        """
        self._runs = Store(store_url).runs
        self._run = run
        self._message = ""
        self._facts: dict[str, float] = {}
        self._said_at = 0.0
        self._newest: deque[tuple[str, dict[str, float]]] = deque(maxlen=1)  # set and taken in one step each
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="run-state")

    def say(self, message: str, **facts: float | None) -> None:
        """Write the state: a message, and numbers that persist until they are set again; None removes one."""
        self._message = message
        self._facts |= {name: value for name, value in facts.items() if value is not None}
        for name in (name for name, value in facts.items() if value is None):
            self._facts.pop(name, None)
        self._write_soon()

    def part(self, done: int, total: int) -> None:
        """Report the progress of the current stage."""
        if done < total and time.monotonic() - self._said_at < 0.5:
            return
        self._facts["fraction"] = done / total
        self._write_soon()

    def end(self, status: RunStatus, message: str) -> None:
        """Write the final state of the run and wait until it is stored.

        Raises:
            StoreError: If it cannot be written.
        """
        self.abandon()
        self._facts.pop("fraction", None)
        self._runs.set_state(self._run, status, message, self._facts)

    def abandon(self) -> None:
        """Stop writing: the run has ended, or another process has taken it over."""
        self._newest.clear()
        self._writer.shutdown(wait=True, cancel_futures=True)

    def _write_soon(self) -> None:
        self._said_at = time.monotonic()
        self._newest.append((self._message, dict(self._facts)))
        self._writer.submit(self._write_newest)

    def _write_newest(self) -> None:
        if not self._newest:  # a later state was written instead, or writing was stopped
            return
        time.sleep(_SETTLING_S)
        try:
            newest = self._newest.pop()
        except IndexError:  # writing was stopped
            return
        try:
            self._runs.set_state(self._run, "running", *newest)
        except StarPOError as error:  # if the store is broken, writing the next artifact fails the run
            _log.warning("the state of run %s could not be written: %s", self._run, error)
