"""Shards played by processes of their own, one CPU thread each: neither Python's lock nor the loop is shared.

play_shards (threads that wait) -> WorkerPool.play -> an idle worker process -> rows
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from queue import LifoQueue
from threading import Lock

import pyarrow as pa

from ragen import errors
from ragen.errors import EngineError, StarPOError
from ragen.rollout.episode import Episode
from ragen.rollout.job import RolloutJob
from ragen.rollout.worker import FAILURE, REQUEST, pack_request, read_frame, write_frame

_log = logging.getLogger(__name__)

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class WorkerPool:
    """Implements `ragen.rollout.shards.ShardPlayer`. Workers start when first needed, stay, and end with this process.

    A worker that dies is replaced, and its shard played again, once.

    Attributes:
        num_workers: Processes at most.
    """

    def __init__(self, engine_name: str, num_workers: int) -> None:
        """Start nothing yet.

        Args:
            engine_name: Name in `ragen.registry.ENGINES`.
            num_workers: Processes at most.
        """
        self.num_workers = num_workers
        self._engine_name = engine_name
        self._places: LifoQueue[_Worker | None] = LifoQueue()  # None: a place whose worker is yet to be started
        for _ in range(num_workers):
            self._places.put(None)
        self._busy: set[_Worker] = set()
        self._num_stops = 0
        self._lock = Lock()

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        """See `ShardPlayer.play`."""
        request, num_stops = pack_request(job, episodes), self._num_stops
        worker = self._places.get()
        try:
            for is_last_try in (False, True):
                worker = worker if worker is not None and worker.is_alive else _Worker(self._engine_name)
                try:
                    kind, payload = self._ask(worker, request)
                    break
                except (EOFError, OSError) as error:
                    if self._num_stops != num_stops:
                        raise EngineError("another shard has failed, so this one was stopped") from error
                    if is_last_try:
                        raise EngineError(
                            f"two rollout workers died over the same shard, the last with {worker.end()}: is there "
                            "enough memory? Lower rollout.shard_groups, or RAGEN_THREADS, the number of workers"
                        ) from error
                    _log.warning("a rollout worker died (%s); a new one plays its shard again", worker.end())
        finally:
            self._places.put(worker)
        if kind == FAILURE:
            raise _error(payload)
        return pa.ipc.open_stream(payload).read_all()

    def stop(self) -> None:
        """See `ShardPlayer.stop`: workers at work are killed; others take their places when needed."""
        with self._lock:
            self._num_stops += 1
            for worker in self._busy:
                worker.kill()

    def _ask(self, worker: "_Worker", request: bytes) -> tuple[bytes, bytes]:
        with self._lock:
            self._busy.add(worker)
        try:
            return worker.ask(request)
        finally:
            with self._lock:
                self._busy.discard(worker)


class _Worker:
    """A process that runs `ragen.rollout.worker`."""

    def __init__(self, engine_name: str) -> None:
        command = [sys.executable, "-m", "ragen.rollout.worker", engine_name]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **_ONE_THREAD}
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """Send a request and wait for its answer.

        Raises:
            EOFError, OSError: If the process has died.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        write_frame(self._process.stdin, REQUEST, request)
        return read_frame(self._process.stdout)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> str:
        """How the process ended, in words."""
        return f"exit status {self._process.wait(timeout=10)}"


def _error(payload: bytes) -> StarPOError:
    """The error that a worker met, of its own type where that is one of the library's."""
    failure = json.loads(payload)
    kind = getattr(errors, failure["type"], EngineError)
    is_ours = isinstance(kind, type) and issubclass(kind, StarPOError)
    return (kind if is_ours else EngineError)(failure["message"])
