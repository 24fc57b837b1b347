"""Engines, their worker processes and learners that stay loaded between stages.

Stages are functions of stored inputs; this only spares them the loading. `load` is a no-op when the object already is
at the checkpoint asked for.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from starpo.ragen.agents.policy.complete import complete_folder
from starpo.ragen.agents.rollout.engine import RolloutEngine
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.local_player import LocalPlayer
from starpo.ragen.agents.rollout.pool import Pool
from starpo.ragen.agents.rollout.shards import ShardPlayer
from starpo.ragen.agents.rollout.vllm_python import vllm_python
from starpo.ragen.agents.rollout.worker_pool import WorkerPool
from starpo.ragen.config.ray_runtime import RayRuntime
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import ArtifactMissingError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import LEARNERS
from starpo.ragen.learning.learners.learner import Learner
from starpo.ragen.recompute.derive import derive, restore
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.recipe import find_recipe

if TYPE_CHECKING:
    from starpo.ragen.agents.rollout.ray_pool import RayPool

T = TypeVar("T")


@dataclass
class _Shelf:
    """What stays loaded: all that was made for one purpose, let go when another is asked for.

    Whoever is still at work with it keeps it meanwhile; worker processes and actors end when nobody does.
    """

    purpose: object = None
    made: dict[object, Any] = field(default_factory=dict)
    num_lost: int = 0
    _lock: RLock = field(default_factory=RLock)

    def get(self, purpose: object, kind: object, make: Callable[[], T]) -> T:
        """The thing of this kind for this purpose, made if need be."""
        with self._lock:
            if purpose != self.purpose:
                self.clear()
                self.purpose = purpose
            if kind not in self.made:
                self.made[kind] = make()
            found: T = self.made[kind]
            return found

    def clear(self) -> None:
        """Let all of it go."""
        with self._lock:
            for old in self.made.values():
                self.num_lost += getattr(old, "num_lost", 0)
                getattr(old, "close", bool)()
            self.made.clear()

    @property
    def pools(self) -> list[Pool]:
        """The pools among it."""
        return [one for one in self.made.values() if isinstance(one, Pool)]


_PLAYERS, _LEARNERS = _Shelf(), _Shelf()
_IS_HERE: ContextVar[bool] = ContextVar("is_here", default=False)


@contextmanager
def playing_here() -> Iterator[None]:
    """Inside, episodes are played on this machine, whatever RAGEN_POOL says: its store is no other machine's."""
    token = _IS_HERE.set(True)
    try:
        yield
    finally:
        _IS_HERE.reset(token)


def shard_player(rollout: RolloutConfig, num_shards: int) -> ShardPlayer:
    """Who plays a rollout.

    Ray actors where RAGEN_POOL asks for them; worker processes where several shards can share the CPU's cores, or an
    update computes in this process meanwhile (`rollout.staleness`); else this process. Without Ray, vLLM is played in
    processes of the environment that has it, or here if that is this one and there is a GPU: on the CPU vLLM works in
    no other thread than the one that started it.
    """
    spec, num_threads = EngineSpec.of(rollout), Runtime.current().threads
    is_apart = rollout.staleness > 0
    if _is_on_ray(rollout):
        return _actors(spec)
    if rollout.engine == "vllm":
        python, num_engines = vllm_python(), rollout.vllm.num_engines
        if python != sys.executable or num_engines > 1 or is_apart or not torch.cuda.is_available():
            return _workers(spec, num_engines, python)
        return LocalPlayer(_engine(spec))
    num_workers = 1 if spec.is_continuous or torch.cuda.is_available() else min(num_threads, num_shards)
    if num_workers > 1 or is_apart:
        return _workers(spec, num_threads if num_workers > 1 else 1, sys.executable)
    return LocalPlayer(_engine(spec))


def is_deterministic(rollout: RolloutConfig) -> bool:
    """Does this engine give the same bytes again where it plays?"""
    if _is_on_ray(rollout):
        return _actors(EngineSpec.of(rollout)).is_deterministic
    return _engine(EngineSpec.of(rollout)).is_deterministic


def num_lost_workers() -> int:
    """Worker processes and actors that died or hung so far, and were replaced."""
    return _PLAYERS.num_lost + sum(pool.num_lost for pool in _PLAYERS.pools)


def stop_playing() -> None:
    """Make what is in play fail soon: what it was for has failed."""
    for pool in _PLAYERS.pools:
        pool.stop()


def learner_at(store: Store, checkpoint: str, config: UpdateConfig, reference: str | None) -> Learner:
    """The process's learner for this configuration, at this checkpoint."""
    folder = checkpoint_folder(store, checkpoint)
    learner = learner_for(config)
    learner.load(folder, checkpoint, checkpoint_folder(store, reference) if reference else None)
    return learner


def checkpoint_folder(store: Store, checkpoint: str) -> str:
    """A local folder with this checkpoint. One that was dropped is derived, and stored again, first.

    Raises:
        ArtifactMissingError: If there is no such checkpoint, and it cannot be derived.
        DerivationError: If what was derived is not the original, or cannot be proved to be.
    """
    try:
        return complete_folder(store, checkpoint, lambda base: checkpoint_folder(store, base))
    except ArtifactMissingError:
        if store.dropped("checkpoint", checkpoint) is None:
            raise
    with derive(store, find_recipe(store, checkpoint), learner_for) as derivation:
        restore(store, derivation)
    return complete_folder(store, checkpoint, lambda base: checkpoint_folder(store, base))


def learner_for(config: UpdateConfig) -> Learner:
    """The process's learner for this configuration, wherever it is; one of another configuration is let go."""
    name = config.model_dump_json()
    return _LEARNERS.get(name, name, lambda: load(LEARNERS, config.learner)(config, Runtime.current().threads))


def forget_learner() -> None:
    """What the learner holds is not what the store does: the next update loads that."""
    _LEARNERS.clear()


def _workers(spec: EngineSpec, num_workers: int, python: str) -> WorkerPool:
    return _PLAYERS.get(spec, (num_workers, python), lambda: WorkerPool(spec, num_workers, python))


def _is_on_ray(rollout: RolloutConfig) -> bool:
    if _IS_HERE.get() or rollout.engine == "openai":  # which only waits for a server
        return False
    return Runtime.current().pool == "ray"


def _actors(spec: EngineSpec) -> "RayPool":
    def make() -> "RayPool":
        from starpo.ragen.agents.rollout.ray_pool import RayPool

        python = vllm_python() if spec.name == "vllm" else sys.executable
        return RayPool(spec, RayRuntime(), Runtime.current().threads, None if python == sys.executable else python)

    return _PLAYERS.get(spec, "actors", make)


def _engine(spec: EngineSpec) -> RolloutEngine:
    # One thread: shards are the unit of parallel work, and their rows must not depend on who plays them.
    return _PLAYERS.get(spec, "engine", lambda: spec.make(num_threads=1))
