"""`Players`: engines, worker processes and actors that play a run's rollouts, kept loaded between stages.

settings of a rollout, this machine --Players.player--> ShardPlayer

Engines and pools are imported when something is to be played.
"""

import sys
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from starpo.ragen.config.device import Device
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.runtime import Runtime

if TYPE_CHECKING:
    from starpo.ragen.agents.rollout.engine import RolloutEngine
    from starpo.ragen.agents.rollout.engine_spec import EngineSpec
    from starpo.ragen.agents.rollout.pools.pool import Pool
    from starpo.ragen.agents.rollout.pools.ray_pool import RayPool
    from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
    from starpo.ragen.agents.rollout.shards import ShardPlayer

T = TypeVar("T")


class Players:
    """All players of one engine; they are released when another engine is requested.

    Callers that still use a player keep it alive; worker processes and actors end when it is no longer used. A rollout
    beside an update and an evaluation may request players at the same time, from two threads.
    """

    def __init__(self, *, are_here: bool = False) -> None:
        """Load nothing yet.

        Args:
            are_here: Play on this machine regardless of STARPO_POOL, as no other machine can read the store.
        """
        self._are_here = are_here
        self._spec: EngineSpec | None = None
        self._loaded: dict[object, Any] = {}
        self._num_lost = 0
        self._lock = RLock()

    @property
    def are_elsewhere(self) -> bool:
        """Whether policies are played on other machines, which read the store."""
        return Runtime.current().pool == "ray" and not self._are_here

    @property
    def num_lost(self) -> int:
        """Number of worker processes and actors that have died or hung so far, and were replaced."""
        return self._num_lost + sum(pool.num_lost for pool in self._pools)

    def player(self, rollout: RolloutConfig, num_shards: int) -> "ShardPlayer":
        """Return the player of a rollout.

        Ray actors if STARPO_POOL selects them; worker processes if several shards can share the CPU's cores, if an
        update runs in this process at the same time (`rollout.staleness`), or if the engine declares several copies,
        another interpreter or, without a GPU, a process of its own; otherwise this process.
        """
        spec, num_threads, engine = _spec_of(rollout), Runtime.current().threads, rollout.engine_config
        python, has_gpu = engine.python(), Device.here().is_gpu
        if self._is_on_ray(rollout):
            return self._actors(spec, python)
        has_shards_to_share = (
            engine.plays_checkpoint and not (spec.is_continuous or has_gpu) and min(num_threads, num_shards) > 1
        )
        num_workers = num_threads if has_shards_to_share else engine.copies[0]
        is_beside_update = rollout.staleness > 0 and engine.plays_checkpoint
        is_apart = is_beside_update or python != sys.executable or (engine.needs_process_on_cpu and not has_gpu)
        if num_workers > 1 or is_apart:
            return self._workers(spec, num_workers, python)
        from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer

        return LocalPlayer(self._engine(spec))

    def is_deterministic(self, rollout: RolloutConfig) -> bool:
        """Whether the engine reproduces the same bytes where it plays."""
        spec = _spec_of(rollout)
        if self._is_on_ray(rollout):
            return self._actors(spec, rollout.engine_config.python()).is_deterministic
        return self._engine(spec).is_deterministic

    def stop(self) -> None:
        """Make running episodes fail soon, because the work that needs them has failed."""
        for pool in self._pools:
            pool.stop()

    def close(self) -> None:
        """Close and release all players."""
        with self._lock:
            for player in self._loaded.values():
                self._num_lost += getattr(player, "num_lost", 0)
                getattr(player, "close", bool)()
            self._loaded.clear()

    @property
    def _pools(self) -> "list[Pool]":
        if not self._loaded:
            return []
        from starpo.ragen.agents.rollout.pools.pool import Pool

        return [player for player in self._loaded.values() if isinstance(player, Pool)]

    def _is_on_ray(self, rollout: RolloutConfig) -> bool:
        return self.are_elsewhere and rollout.engine_config.plays_checkpoint  # others only wait, or are quick

    def _workers(self, spec: "EngineSpec", num_workers: int, python: str) -> "WorkerPool":
        from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool

        return self._kept(spec, (num_workers, python), lambda: WorkerPool(spec, num_workers, python))

    def _actors(self, spec: "EngineSpec", python: str) -> "RayPool":
        def make() -> "RayPool":
            from starpo.ragen.agents.rollout.pools.ray_pool import RayPool
            from starpo.ragen.config.ray_runtime import RayRuntime

            return RayPool(spec, RayRuntime(), Runtime.current().threads, None if python == sys.executable else python)

        return self._kept(spec, "actors", make)

    def _engine(self, spec: "EngineSpec") -> "RolloutEngine":
        # One thread: shards are the unit of parallelism, and their rows must not depend on the worker that plays them.
        return self._kept(spec, "engine", lambda: spec.make(num_threads=1))

    def _kept(self, spec: "EngineSpec", kind: object, make: Callable[[], T]) -> T:
        """Return the player of this kind for this engine; create it if necessary."""
        with self._lock:
            if spec != self._spec:
                self.close()
                self._spec = spec
            if kind not in self._loaded:
                self._loaded[kind] = make()
            player: T = self._loaded[kind]
            return player


def _spec_of(rollout: RolloutConfig) -> "EngineSpec":
    from starpo.ragen.agents.rollout.engine_spec import EngineSpec

    return EngineSpec.of(rollout)
