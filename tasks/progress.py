"""The state that a run writes to the store while it works, for people and for `starpo follow`."""

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.guard import tell_of_slow_calls
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunStatus

if TYPE_CHECKING:
    from starpo.ragen.agents.rollout.shards import ShardPlayer

_SETTLING_S = 0.05
"""Delay before writing, in seconds: states that follow each other faster are merged into one."""

_OF_A_STAGE = ("fraction", "stage_seconds_left")
"""Numbers that end with the stage that they describe."""

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
        self._message = self._stage = self._warning = ""
        self._base: tuple[float, int] | None = None  # time and units done from which the stage's speed is measured
        self._facts: dict[str, float] = {}
        self._said_at = 0.0
        self._newest: deque[tuple[str, dict[str, float], str]] = deque(maxlen=1)  # set and taken in one step each
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="run-state")
        self._stop_listening = tell_of_slow_calls(self._slow)

    def say(self, message: str, **facts: float | None) -> None:
        """Write the state: a message, and numbers that persist until they are set again; None removes one."""
        self._message = self._stage = message
        self._base = None
        self._facts |= {name: value for name, value in facts.items() if value is not None}
        for name in (*_OF_A_STAGE, *(name for name, value in facts.items() if value is None)):
            self._facts.pop(name, None)
        self._write_soon()

    def _slow(self, call: str) -> None:
        """Write which call takes long; empty once it has returned."""
        self._message = f"{self._stage}: {call}" if call else self._stage
        self._write_soon()

    def warn(self, warning: str) -> None:
        """Write why the run learns nothing; empty if it does."""
        self._warning = warning
        self._write_soon()

    def counting(self, unit: str) -> Callable[[int, int], None]:
        """Return a callback for the progress of the current stage: the number of units done, and their total."""
        return lambda num_done, total: self.part(num_done, total, unit)

    def watch(self, player: "ShardPlayer", num_responses: int) -> Callable[[int, int], None] | None:
        """Watch a rollout or an evaluation: by responses where it is played in this process, else by shards.

        Args:
            player: Plays it.
            num_responses: Number of its responses at most.

        Returns:
            The callback for shards; None if the player reports its responses.
        """
        if not hasattr(player, "on_responses"):
            self._base = time.monotonic(), 0
            return self.counting("shard")
        player.on_responses = lambda num_done: self.part(num_done, 0, "response", f" of at most {num_responses}")
        return None

    def resume(self, num_stored: int, total: int) -> None:
        """Tell, for the rest of the current stage, that an earlier attempt has finished a part of its episodes."""
        self._message = self._stage = f"{self._stage} ({num_stored:,} of {total:,} episodes were stored)"
        self._base = None
        self._write_soon()

    def part(self, num_done: int, total: int, unit: str = "step", limit: str = "") -> None:
        """Report the progress of the current stage: units done, and their total; 0, with a text, if it is not known."""
        now = time.monotonic()
        if (num_done < total or not total) and now - self._said_at < 0.5:
            return
        self._message = f"{self._stage} {unit} {num_done}{f' of {total}' if total else limit}"
        since, before = self._base = self._base or (now, num_done)  # the first unit may include preparations
        if total:
            self._facts["fraction"] = num_done / total
        if total and num_done > before:
            self._facts["stage_seconds_left"] = round((now - since) / (num_done - before) * (total - num_done), 1)
        self._write_soon()

    def end(self, status: RunStatus, message: str, **facts: float) -> None:
        """Write the final state of the run, with these numbers too, and wait until it is stored.

        Raises:
            StoreError: If it cannot be written.
        """
        self.abandon()
        self._facts |= facts
        for name in _OF_A_STAGE:
            self._facts.pop(name, None)
        self._runs.set_state(self._run, status, message, self._facts, self._warning)

    def abandon(self) -> None:
        """Stop writing: the run has ended, or another process has taken it over."""
        self._stop_listening()
        self._newest.clear()
        self._writer.shutdown(wait=True, cancel_futures=True)

    def _write_soon(self) -> None:
        self._said_at = time.monotonic()
        self._newest.append((self._message, dict(self._facts), self._warning))
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
