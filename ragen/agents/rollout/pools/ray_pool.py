"""Shards played by Ray actors, on this machine or on the nodes of a cluster.

    Pool -> an actor: job and episodes as JSON -> checkpoint (from the store, on another node) -> LocalPlayer -> rows

Rows are returned through Ray's object store: on the node of this process they are read without copying. The actors are
plain Ray actors, not Prefect tasks, whose overhead would exceed the cost of a small shard.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from starpo.ragen.agents.rollout.engine import RolloutEngine
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.pool import Pool, WorkerLostError, error_of
from starpo.ragen.agents.rollout.pools.ray_cluster import check_room, connect
from starpo.ragen.agents.rollout.pools.worker import FAILURE, ROWS, failure, pack_request, unpack_request
from starpo.ragen.config.device import Device
from starpo.ragen.config.ray_runtime import RayRuntime
from starpo.ragen.core.errors import ConfigError, EngineError, StarPOError
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.registry import ENGINES

_log = logging.getLogger(__name__)

GRACE_S = 60.0
"""Seconds that a shard may exceed its own deadline before its actor is considered hung."""

_ADVICE = (
    "is there enough memory on its node, and enough time? Lower rollout.shard_groups or STARPO_RAY_ACTORS, or raise "
    "STARPO_RAY_SHARD_S"
)


class RayPool(Pool):
    """Implements `ragen.agents.rollout.shards.ShardPlayer`. Actors end with this process, or when they are killed.

    Attributes:
        is_deterministic: Whether the engines of all actors used so far are deterministic, on devices like that of this
            process, where their work is verified.
    """

    def __init__(self, spec: EngineSpec, settings: RayRuntime, num_threads: int, python: str | None = None) -> None:
        """Connect to the cluster; actors start when they are needed.

        Args:
            spec: The engine of each actor.
            settings: Number of actors, their resources and time limits.
            num_threads: Default number of actors, and CPUs of a cluster that is started here.
            python: Interpreter of the actors, at the same path on every node, in an environment with this package and
                the same releases of Ray and Python. None: that of this process.

        Raises:
            MissingPackageError: If Ray is not installed.
            EngineError: If the cluster cannot be joined.
            ConfigError: If the cluster lacks the resources for all actors, or if an actor requests fewer GPUs than the
                engine's tensor-parallel size.
        """
        num_actors = settings.actors or num_threads
        num_parallel = json.loads(spec.options).get("tensor_parallel_size", 1)
        if 0 < settings.actor_gpus < num_parallel:
            raise ConfigError(
                f"the engine's tensors are to be split over {num_parallel} GPUs, and a rollout actor asks for "
                f"{settings.actor_gpus:g}: set STARPO_RAY_ACTOR_GPUS={num_parallel}, or lower tensor_parallel_size"
            )
        ray = connect(num_cpus=num_threads)
        if not settings.autoscales:
            what = "rollout actors (STARPO_RAY_ACTORS, STARPO_RAY_ACTOR_CPUS, _GPUS, _RESOURCES)"
            check_room(ray.nodes(), settings.actor, num_actors, what)
        num_gpus = ray.cluster_resources().get("GPU", 0)
        if num_gpus and not settings.actor_gpus:
            _log.warning(
                "the Ray cluster has %g GPUs and rollout actors ask for none, so they play on CPUs; set "
                "STARPO_RAY_ACTOR_GPUS to the number that each may use",
                num_gpus,
            )
        self.is_deterministic = True
        super().__init__(
            lambda: _Actor(ray, spec, settings, python, self._learn), num_actors, spec.is_continuous, _ADVICE
        )

    def _learn(self, is_deterministic: bool) -> None:
        self.is_deterministic &= is_deterministic


class _Actor:
    """Local handle of a Ray actor; implements `ragen.agents.rollout.pools.pool.Worker`."""

    def __init__(
        self, ray: Any, spec: EngineSpec, settings: RayRuntime, python: str | None, learn: Callable[[bool], None]
    ) -> None:
        resources = settings.actor
        self._ray = ray
        self._settings = settings
        self._learn = learn
        self.is_alive = True
        self._checkpoint_key: str | None = None
        self._handle = (
            ray.remote(ShardActor)
            .options(
                num_cpus=resources.pop("CPU", 0),
                num_gpus=resources.pop("GPU", 0),
                resources=resources,
                max_restarts=0,
                runtime_env=None if python is None else {"py_executable": python},
            )
            .remote(spec, ENGINES[spec.name], ray.get_runtime_context().get_node_id(), Device.here())
        )

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        job = replace(job, folder=str(Path(job.folder).resolve()))  # actors have their own working directory
        if job.checkpoint_key != self._checkpoint_key:
            self._learn(self._get(self._handle.load.remote(job.to_json()), self._settings.start_s, "to start"))
            self._checkpoint_key = job.checkpoint_key
        limit_s = self._settings.shard_s
        if job.deadline_s is not None:
            limit_s = min(limit_s, job.deadline_s + GRACE_S)
        return self._get(self._handle.play.remote(pack_request(job, episodes)), limit_s, "for its shard")

    def kill(self) -> None:
        self.is_alive = False
        self._ray.kill(self._handle)

    def _get(self, answer: Any, limit_s: float, what: str) -> Any:
        exceptions = self._ray.exceptions
        started = time.monotonic()
        try:
            kind, content = self._ray.get(answer, timeout=limit_s)
        except exceptions.GetTimeoutError as error:
            self.kill()
            raise WorkerLostError(f"no answer within the {limit_s:g} s that it had {what}") from error
        except exceptions.RayError as error:
            self.kill()
            raise WorkerLostError(f"{_reason(error)}, {time.monotonic() - started:.0f} s after the request") from error
        if kind == FAILURE:
            raise error_of(content)
        return content


class ShardActor:
    """The code in the actor's process: an engine on one thread, and a player."""

    def __init__(self, spec: EngineSpec, target: str, asking_node: str, asking_device: Device) -> None:
        """Register the engine without loading anything.

        Args:
            spec: The engine.
            target: Its `module:attribute`, as registered in the driver process.
            asking_node: Ray's id of the driver's node.
            asking_device: The driver's device.
        """
        ENGINES[spec.name] = target
        self._spec = spec
        self._asking_node = asking_node
        self._asking_device = asking_device
        self._folders: dict[str, str] = {}

    def load(self, job: str) -> tuple[bytes, Any]:
        """Load a job's checkpoint; return (ROWS, whether the driver's process would play the same), or (FAILURE, the
        error)."""

        def work() -> bool:
            here = self._here(RolloutJob.from_json(job))
            self._engine.load(here.folder, here.checkpoint_key)
            return bool(self._engine.is_deterministic) and Device.here() == self._asking_device

        return _answer(work)

    def play(self, request: bytes) -> tuple[bytes, Any]:
        """Play a shard; return (ROWS, dataset `turns`), or (FAILURE, the error)."""

        def work() -> pa.Table:
            from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer

            job, episodes = unpack_request(request)
            return LocalPlayer(self._engine).play(self._here(job), episodes)

        return _answer(work)

    @cached_property
    def _engine(self) -> RolloutEngine:
        return self._spec.make(num_threads=1)

    def _here(self, job: RolloutJob) -> RolloutJob:
        """Return the job with a policy folder on this node; on the driver's node, the original one without copying."""
        import ray

        if job.store_url is None or ray.get_runtime_context().get_node_id() == self._asking_node:
            return job
        if job.checkpoint_key not in self._folders:
            from starpo.ragen.agents.policy.complete import complete
            from starpo.ragen.store import Store

            folder_of = partial(Store(job.store_url).local_folder, "checkpoint")
            try:
                self._folders = {job.checkpoint_key: complete(folder_of(job.checkpoint_key), folder_of)}
            except StarPOError as error:
                raise EngineError(
                    f"a rollout actor on another node cannot read checkpoint {job.checkpoint_key} from the store "
                    f"{job.store_url}: {error}. Nodes of a cluster need a store that all of them reach: s3://, or a "
                    "folder on a shared file system"
                ) from error
        return replace(job, folder=self._folders[job.checkpoint_key])


def _answer(work: Callable[[], Any]) -> tuple[bytes, Any]:
    try:
        return ROWS, work()
    except FOREIGN as error:
        return FAILURE, failure(error)


def _reason(error: Exception) -> str:
    """Summarise Ray's message about a lost actor: its first line and, if it has a traceback, its last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if "Traceback" in str(error) else lines[0]
