"""A pool of workers that play shards elsewhere; a lost worker is replaced, and its shard is retried.

play_shards (waiting threads) -> Pool.play -> an idle worker -> rows
"""

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, LifoQueue
from threading import Lock
from typing import Protocol

import pyarrow as pa

from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.core import errors
from starpo.ragen.core.errors import EngineError, StarPOError

_log = logging.getLogger(__name__)


class WorkerLostError(Exception):
    """A worker died, or hung and was killed; the message gives the details."""


class Worker(Protocol):
    """Plays one shard at a time."""

    @property
    def is_alive(self) -> bool:
        """Whether it can play a shard."""

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        """Play a shard.

        Raises:
            WorkerLostError: If the worker is lost while playing.
            StarPOError: An error raised in the worker.
        """

    def kill(self) -> None:
        """Terminate the worker; may be called by any thread while it plays."""


class Pool:
    """Implements `ragen.agents.rollout.shards.ShardPlayer`. Workers start when first needed, and are reused.

    Attributes:
        num_workers: Maximum number of workers.
        is_continuous: See `ShardPlayer`.
        num_lost: Number of workers lost so far.
    """

    def __init__(self, start: Callable[[], Worker], num_workers: int, is_continuous: bool, advice: str = "") -> None:
        """Create the pool without starting workers.

        Args:
            start: Starts a worker.
            num_workers: Maximum number of workers.
            is_continuous: Whether their engines batch all requests in flight.
            advice: Advice for the error message when workers are lost repeatedly on the same shard, if what they raise
                has none.
        """
        self.num_workers = num_workers
        self.is_continuous = is_continuous
        self.num_lost = 0
        self._start = start
        self._advice = advice
        self._places: LifoQueue[Worker | None] = LifoQueue()  # None: a slot whose worker is not started yet
        for _ in range(num_workers):
            self._places.put(None)
        self._busy: set[Worker] = set()
        self._num_stops = 0
        self._lock = Lock()

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        """See `ShardPlayer.play`."""
        num_stops = self._num_stops
        worker = self._places.get()
        try:
            for is_last_try in (False, True):
                worker = worker if worker is not None and worker.is_alive else self._start()
                try:
                    return self._ask(worker, job, episodes, num_stops)
                except WorkerLostError as lost:
                    with self._lock:
                        self._check_not_stopped(num_stops)
                        self.num_lost += 1
                    if is_last_try:
                        raise EngineError(
                            f"two rollout workers died on the same shard, the last with {lost}"
                            f"{f': {self._advice}' if self._advice else ''}"
                        ) from lost
                    _log.warning("a rollout worker died (%s); a new one plays its shard again", lost)
        finally:
            self._places.put(worker)
        raise AssertionError

    def stop(self) -> None:
        """See `ShardPlayer.stop`: busy workers are killed, and replaced when needed."""
        with self._lock:
            self._num_stops += 1
            for worker in self._busy:
                worker.kill()

    def close(self) -> None:
        """Terminate idle workers at once; busy ones end when they are no longer referenced."""
        idle: list[Worker | None] = []
        with suppress(Empty):
            while True:
                idle.append(self._places.get_nowait())
        for worker in idle:  # put back only after all are taken, since the queue is last in, first out
            if worker is not None:
                worker.kill()
            self._places.put(None)

    def _ask(self, worker: Worker, job: RolloutJob, episodes: Sequence[Episode], num_stops: int) -> pa.Table:
        with self._lock:
            self._check_not_stopped(num_stops)  # while the worker was started: `stop` did not see it
            self._busy.add(worker)
        try:
            return worker.play(job, episodes)
        finally:
            with self._lock:
                self._busy.discard(worker)

    def _check_not_stopped(self, num_stops: int) -> None:
        if self._num_stops != num_stops:
            raise EngineError("another shard has failed, so this one was stopped")


def error_of(payload: bytes) -> StarPOError:
    """Decode an error from `worker.failure`; errors of this library keep their type, others become EngineError."""
    failure = json.loads(payload)
    kind = getattr(errors, failure["type"], EngineError)
    is_ours = isinstance(kind, type) and issubclass(kind, StarPOError)
    return (kind if is_ours else EngineError)(failure["message"])
