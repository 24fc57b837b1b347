"""Engines, their worker processes and learners that stay loaded between stages.

Stages are functions of stored inputs; this module only avoids loading models again. `load` is a no-op if the object is
already at the requested checkpoint.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from tempfile import TemporaryDirectory
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, cast

from starpo.ragen.agents.policy.complete import complete_in_place
from starpo.ragen.agents.rollout.engine import RolloutEngine
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.pools.pool import Pool
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.agents.rollout.shards import ShardPlayer
from starpo.ragen.config.device import Device
from starpo.ragen.config.ray_runtime import RayRuntime
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import LEARNERS
from starpo.ragen.learning.learners.learner import Learner
from starpo.ragen.runs.derive import derive, new_policy, restore
from starpo.ragen.runs.newest_policies import POLICIES
from starpo.ragen.runs.stored_policy import complete_folder
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.recipe import deriving, find_recipe

if TYPE_CHECKING:
    from starpo.ragen.agents.rollout.pools.ray_pool import RayPool

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class _Loaded:
    """Objects that stay loaded: everything created for one purpose, released when another purpose is requested.

    Callers that still use an object keep it alive; worker processes and actors end when it is no longer used.
    """

    purpose: object = None
    made: dict[object, Any] = field(default_factory=dict)
    num_lost: int = 0
    _lock: RLock = field(default_factory=RLock)

    def get(self, purpose: object, kind: object, make: Callable[[], T]) -> T:
        """Return the object of this kind for this purpose; create it if necessary."""
        with self._lock:
            if purpose != self.purpose:
                self.clear()
                self.purpose = purpose
            if kind not in self.made:
                self.made[kind] = make()
            found: T = self.made[kind]
            return found

    def clear(self) -> None:
        """Close and release all objects."""
        with self._lock:
            for old in self.made.values():
                self.num_lost += getattr(old, "num_lost", 0)
                getattr(old, "close", bool)()
            self.made.clear()

    @property
    def pools(self) -> list[Pool]:
        """The pools among them."""
        return [one for one in self.made.values() if isinstance(one, Pool)]


_PLAYERS, _LEARNERS = _Loaded(), _Loaded()
_DERIVING = RLock()
"""Held while a learner moves to another checkpoint. A rollout beside an update may need the same one."""
_IS_HERE: ContextVar[bool] = ContextVar("is_here", default=False)


@contextmanager
def playing_here() -> Iterator[None]:
    """Context manager: play episodes on this machine regardless of STARPO_POOL, as no other machine can read its
    store."""
    token = _IS_HERE.set(True)
    try:
        yield
    finally:
        _IS_HERE.reset(token)


def shard_player(rollout: RolloutConfig, num_shards: int) -> ShardPlayer:
    """Return the player of a rollout.

    Ray actors if STARPO_POOL selects them; worker processes if several shards can share the CPU's cores, if an update
    runs in this process at the same time (`rollout.staleness`), or if the engine declares several copies, another
    interpreter or, without a GPU, a process of its own; otherwise this process.
    """
    spec, num_threads, engine = EngineSpec.of(rollout), Runtime.current().threads, rollout.engine_config
    python, has_gpu = engine.python(), Device.here().is_gpu
    if _is_on_ray(rollout):
        return _actors(spec, python)
    has_shards_to_share = not (spec.is_continuous or has_gpu) and min(num_threads, num_shards) > 1
    num_workers = num_threads if has_shards_to_share else engine.copies[0]
    is_apart = rollout.staleness > 0 or python != sys.executable or (engine.needs_process_on_cpu and not has_gpu)
    if num_workers > 1 or is_apart:
        return _workers(spec, num_workers, python)
    return LocalPlayer(_engine(spec))


def is_deterministic(rollout: RolloutConfig) -> bool:
    """Whether the engine reproduces the same bytes where it plays."""
    if _is_on_ray(rollout):
        return _actors(EngineSpec.of(rollout), rollout.engine_config.python()).is_deterministic
    return _engine(EngineSpec.of(rollout)).is_deterministic


def num_lost_workers() -> int:
    """Return the number of worker processes and actors that have died or hung so far, and were replaced."""
    return _PLAYERS.num_lost + sum(pool.num_lost for pool in _PLAYERS.pools)


def stop_playing() -> None:
    """Make running episodes fail soon, because the work that needs them has failed."""
    for pool in _PLAYERS.pools:
        pool.stop()


def learner_at(store: Store, checkpoint: str, config: UpdateConfig, reference: str | None) -> Learner:
    """Return the process's learner for this configuration, loaded at this checkpoint, which is derived if dropped.

    Raises:
        ArtifactMissingError: If the checkpoint does not exist and cannot be derived.
        DerivationError: If the derived checkpoint is not the original, or cannot be proved to be.
    """
    with _DERIVING:
        reference_folder = policy_folder(store, reference) if reference else None
        with _whole(store, checkpoint, config) as folder:
            learner = learner_for(config)
            learner.load(folder, checkpoint, reference_folder)
        if store.was_made("checkpoint", checkpoint):
            _say_if_elsewhere(Device.of(store.lasting_manifest("checkpoint", checkpoint).provenance), Device.here())
        return learner


@cache
def _say_if_elsewhere(there: Device, here: Device) -> None:
    """Say once that a policy made on another device is trained here."""
    if there.is_unlike(here):
        _log.warning(
            "the checkpoint was made on %s and is trained on %s, which rounds differently, so digests will "
            "differ from here on, and `starpo verify` shows each part on a device like the one that made it",
            there,
            here,
        )


def policy_folder(store: Store, checkpoint: str) -> str:
    """Return a local folder with this checkpoint's policy; more may be in it. A dropped checkpoint is derived.

    The folder of a checkpoint that is not stored lasts until two newer ones have been made in this process. If actors
    on other machines play, a derived checkpoint is stored, because they read the store.

    Raises:
        ArtifactMissingError, DerivationError: As for `learner_at`.
    """
    with _DERIVING:
        if found := POLICIES.find(checkpoint):
            return found
        if store.dropped("checkpoint", checkpoint) is None:
            return complete_folder(store, checkpoint, partial(policy_folder, store))
        if plays_elsewhere():
            bring_back(store, checkpoint)
            return complete_folder(store, checkpoint, partial(policy_folder, store))
        learner = _holder(checkpoint) or _derived(store, checkpoint)
        if POLICIES.find(checkpoint) is None:
            with new_policy(store, learner, checkpoint, like=checkpoint):
                pass
        return cast(str, POLICIES.find(checkpoint))


@contextmanager
def _whole(store: Store, checkpoint: str, config: UpdateConfig) -> Iterator[str | None]:
    """Context manager: a folder with a whole checkpoint; None if the learner of this configuration holds it already."""
    holder = _holder(checkpoint)
    if holder is None and store.dropped("checkpoint", checkpoint) is not None:
        holder = _derived(store, checkpoint)
    if holder is not None and _LEARNERS.purpose == config.model_dump_json():
        yield None
    elif store.has("checkpoint", checkpoint) or holder is None:
        yield complete_folder(store, checkpoint, partial(policy_folder, store))
    else:  # settings have changed since
        with TemporaryDirectory(prefix="ragen-checkpoint-") as folder:
            holder.save(folder, checkpoint)
            del holder  # the next learner takes its memory
            complete_in_place(folder, partial(policy_folder, store))
            yield folder


def bring_back(store: Store, checkpoint: str) -> None:
    """Derive a dropped checkpoint, and store it.

    Raises:
        ArtifactMissingError, DerivationError: As for `learner_at`.
    """
    with _DERIVING, derive(store, find_recipe(store, checkpoint), learner_at) as derivation:
        restore(store, derivation)


@contextmanager
def restored(store: Store, checkpoints: Iterable[str]) -> Iterator[None]:
    """Context manager: dropped checkpoints, derived and back in the store for other processes, and dropped at the end.

    One that cannot be derived is left to those who need it: they get the error.
    """
    done: list[str] = []
    try:
        for checkpoint in checkpoints:
            with suppress(StarPOError):
                bring_back(store, checkpoint)
                done.append(checkpoint)
        yield
    finally:
        for checkpoint in done:
            store.drop("checkpoint", checkpoint)


def _derived(store: Store, checkpoint: str) -> Learner:
    learner = _learner()
    with deriving(checkpoint):
        recipe = find_recipe(store, checkpoint, learner.checkpoint_key if learner else None)
        _log.warning(
            "checkpoint %s was not kept: %d updates are repeated from checkpoint %s",
            *(checkpoint[:12], len(recipe.updates), recipe.start[:12]),
        )
        with derive(store, recipe, learner_at) as derivation:
            return derivation.learner


def _holder(checkpoint: str) -> Learner | None:
    """Return the process's learner if it is at this checkpoint."""
    learner = _learner()
    return learner if learner and learner.checkpoint_key == checkpoint else None


def _learner() -> Learner | None:
    return next(iter(_LEARNERS.made.values()), None)


def learner_for(config: UpdateConfig) -> Learner:
    """Return the process's learner for this configuration, at any checkpoint; one with another configuration is
    released."""
    name = config.model_dump_json()
    return _LEARNERS.get(name, name, lambda: load(LEARNERS, config.learner)(config, Runtime.current().threads))


def forget_learner() -> None:
    """Release the learner and its policies, because they differ from the stored ones, which are loaded when needed."""
    _LEARNERS.clear()
    POLICIES.clear()


def _workers(spec: EngineSpec, num_workers: int, python: str) -> WorkerPool:
    return _PLAYERS.get(spec, (num_workers, python), lambda: WorkerPool(spec, num_workers, python))


def plays_elsewhere() -> bool:
    """Whether the policies of this process are played on other machines, which read the store."""
    return Runtime.current().pool == "ray" and not _IS_HERE.get()


def _is_on_ray(rollout: RolloutConfig) -> bool:
    return plays_elsewhere() and not rollout.engine_config.is_remote  # a remote one only waits for a server


def _actors(spec: EngineSpec, python: str) -> "RayPool":
    def make() -> "RayPool":
        from starpo.ragen.agents.rollout.pools.ray_pool import RayPool

        return RayPool(spec, RayRuntime(), Runtime.current().threads, None if python == sys.executable else python)

    return _PLAYERS.get(spec, "actors", make)


def _engine(spec: EngineSpec) -> RolloutEngine:
    # One thread: shards are the unit of parallelism, and their rows must not depend on the worker that plays them.
    return _PLAYERS.get(spec, "engine", lambda: spec.make(num_threads=1))
