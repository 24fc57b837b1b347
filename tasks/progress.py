"""What a run says about itself while it works: its state in the store, for people and for `ragen follow`."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunStatus

_SETTLING_S = 0.05
"""Stages that follow one another at once are one state."""

_log = logging.getLogger(__name__)


class RunProgress:
    """Writes a run's state, at most about twice a second while a stage works.

    A thread of its own writes, so that no stage waits for the store; what has been said meanwhile is left out, but for
    the last. May be used by many threads.
    """

    def __init__(self, store_url: str, run: str) -> None:
        """Write nothing yet.

        Args:
            store_url: The store.
            run: The run's name.
        """
        self._runs = Store(store_url).runs
        self._run = run
        self._message = ""
        self._facts: dict[str, float] = {}
        self._said_at = 0.0
        self._newest: tuple[str, dict[str, float]] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="run-state")

    def say(self, message: str, **facts: float | None) -> None:
        """Write the state: a sentence, and numbers that stay until they are said anew; None takes one back."""
        self._message = message
        self._facts |= {name: value for name, value in facts.items() if value is not None}
        for name in (name for name, value in facts.items() if value is None):
            self._facts.pop(name, None)
        self._write_soon()

    def part(self, done: int, total: int) -> None:
        """Part of the present stage is done."""
        if done < total and time.monotonic() - self._said_at < 0.5:
            return
        self._facts["fraction"] = done / total
        self._write_soon()

    def end(self, status: RunStatus, message: str) -> None:
        """The run ended; its last state is written when this returns.

        Raises:
            StoreError: If it cannot be written.
        """
        self.abandon()
        self._facts.pop("fraction", None)
        self._runs.set_state(self._run, status, message, self._facts)

    def abandon(self) -> None:
        """Write nothing more: the run has ended, or is another process's."""
        self._newest = None
        self._writer.shutdown(wait=True, cancel_futures=True)

    def _write_soon(self) -> None:
        self._said_at = time.monotonic()
        self._newest = (self._message, dict(self._facts))
        self._writer.submit(self._write_newest)

    def _write_newest(self) -> None:
        if self._newest is None:  # written with what was said after it, or left out
            return
        time.sleep(_SETTLING_S)
        newest, self._newest = self._newest, None
        if newest is None:
            return
        try:
            self._runs.set_state(self._run, "running", *newest)
        except StarPOError as error:  # the run's next artifact meets the same store, and fails there if it must
            _log.warning("the state of run %s could not be written: %s", self._run, error)
