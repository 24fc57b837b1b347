"""Engines, their worker processes and learners that stay loaded between stages.

Stages are functions of stored inputs; this only spares them the loading. `load` is a no-op when the object already is
at the checkpoint asked for.
"""

from functools import cache

import torch

from ragen.checkpoints.derive import derive, restore
from ragen.checkpoints.recipe import find_recipe
from ragen.config.runtime import Runtime
from ragen.config.update import UpdateConfig
from ragen.learn.learner import Learner
from ragen.registry import ENGINES, LEARNERS, load
from ragen.rollout.engine import RolloutEngine
from ragen.rollout.local_player import LocalPlayer
from ragen.rollout.shards import ShardPlayer
from ragen.rollout.worker_pool import WorkerPool
from ragen.store import Store


def shard_player(engine: str, num_shards: int) -> ShardPlayer:
    """Who plays a rollout: worker processes where several shards can share the CPU's cores, else this process."""
    num_workers = min(Runtime().threads, num_shards)
    if num_workers > 1 and not torch.cuda.is_available():
        return _workers(engine, Runtime().threads)
    return LocalPlayer(_engine(engine))


def is_deterministic(engine: str) -> bool:
    """Does this engine give the same bytes again on this machine?"""
    return _engine(engine).is_deterministic


def learner_at(store: Store, checkpoint: str, config: UpdateConfig, reference: str | None) -> Learner:
    """The process's learner for this configuration, at this checkpoint."""
    folder = checkpoint_folder(store, checkpoint)
    learner = learner_for(config)
    learner.load(folder, checkpoint, store.local_folder("checkpoint", reference) if reference else None)
    return learner


def checkpoint_folder(store: Store, checkpoint: str) -> str:
    """A local folder with this checkpoint. One that was dropped is derived, and stored again, first.

    Raises:
        ArtifactMissingError: If there is no such checkpoint, and it cannot be derived.
        DerivationError: If what was derived is not the original, or cannot be proved to be.
    """
    if store.dropped("checkpoint", checkpoint) is not None:
        with derive(store, find_recipe(store, checkpoint), learner_for) as derivation:
            restore(store, derivation)
    return store.local_folder("checkpoint", checkpoint)


@cache
def learner_for(config: UpdateConfig) -> Learner:
    """The process's learner for this configuration, wherever it is."""
    learner: Learner = load(LEARNERS, config.learner)(config, num_threads=Runtime().threads)
    return learner


@cache
def _workers(engine: str, num_workers: int) -> WorkerPool:
    return WorkerPool(engine, num_workers)


@cache
def _engine(name: str) -> RolloutEngine:
    # One thread: shards are the unit of parallel work, and their rows must not depend on who plays them.
    engine: RolloutEngine = load(ENGINES, name)(num_threads=1)
    return engine
