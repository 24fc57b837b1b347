"""Shards played by subprocesses, one CPU thread each: they do not share Python's GIL or the rollout loop, and may use
the interpreter of another environment.

Pool -> a worker process (`ragen.agents.rollout.pools.worker`) -> rows
"""

import signal
import subprocess
import sys
from collections.abc import Sequence

import pyarrow as pa

from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.pool import Pool, WorkerLostError, error_of
from starpo.ragen.agents.rollout.pools.worker import ENDING_S, FAILURE, REQUEST, pack_request
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.allocator import keeping_freed_memory
from starpo.ragen.core.frames import read_frame, write_frame

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class WorkerPool(Pool):
    """Implements `ragen.agents.rollout.shards.ShardPlayer`. Workers end with this process."""

    def __init__(self, engine: EngineSpec | str, num_workers: int, python: str | None = None) -> None:
        """Create the pool without starting workers.

        Args:
            engine: Engine of the workers; a name in `ragen.core.registry.ENGINES` means that engine without options.
            num_workers: Maximum number of processes.
            python: Interpreter of the workers, in an environment that also has this package. None: this one.
        """
        spec = EngineSpec(engine) if isinstance(engine, str) else engine
        command = [python or sys.executable, "-m", "starpo.ragen.agents.rollout.pools.worker", spec.name, spec.options]
        super().__init__(lambda: _Worker(command), num_workers, spec.is_continuous)


class _Worker:
    """A process that runs `ragen.agents.rollout.pools.worker`; implements `ragen.agents.rollout.pools.pool.Worker`."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**keeping_freed_memory(), **_ONE_THREAD}
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_frame(self._process.stdin, REQUEST, pack_request(job, episodes))
            kind, payload = read_frame(self._process.stdout)
        except (EOFError, OSError) as error:
            raise WorkerLostError(_cause(self._ended(), job.environment.type)) from error
        if kind == FAILURE:
            raise error_of(payload)
        return pa.ipc.open_stream(payload).read_all()

    def kill(self) -> None:
        self._process.kill()

    def _ended(self) -> int:
        """Return the exit status; a process that has stopped answering and does not end by itself is killed."""
        try:
            return self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()


def _cause(status: int, environment: str) -> str:
    """Explain the exit status of a worker that was lost."""
    if status == -signal.SIGALRM:
        return (
            f"a call of environment '{environment}' took longer than {Runtime.current().environment_s:g} s; its stack "
            "is in the output of this process. Mend the environment, or raise STARPO_ENVIRONMENT_S"
        )
    if status == -signal.SIGKILL:
        return (
            f"exit status {status}, it was killed: is there enough memory? Lower rollout.shard_groups, or "
            "STARPO_THREADS, the number of workers"
        )
    how = f"it crashed ({signal.Signals(-status).name})" if status < 0 else "it ended by itself"
    return f"exit status {status}, {how}: look at the code of environment '{environment}' and what it calls"
