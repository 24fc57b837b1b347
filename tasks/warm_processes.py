"""Engines and learners that stay loaded between the stages of one process.

Stages are functions of stored inputs; this only spares them the loading. `load` is a no-op when the object already is
at the checkpoint asked for.
"""

from functools import cache

from ragen.config.runtime import Runtime
from ragen.config.update import UpdateConfig
from ragen.learn.learner import Learner
from ragen.registry import ENGINES, LEARNERS, load
from ragen.rollout.engine import RolloutEngine
from ragen.store import Store


def engine_at(store: Store, checkpoint: str, name: str) -> RolloutEngine:
    """The process's engine of this name, at this checkpoint."""
    engine = _engine(name)
    engine.load(store.local_folder("checkpoint", checkpoint), checkpoint)
    return engine


def learner_at(store: Store, checkpoint: str, config: UpdateConfig, reference: str | None) -> Learner:
    """The process's learner for this configuration, at this checkpoint."""
    learner = _learner(config)
    folder = store.local_folder("checkpoint", checkpoint)
    learner.load(folder, checkpoint, store.local_folder("checkpoint", reference) if reference else None)
    return learner


@cache
def _engine(name: str) -> RolloutEngine:
    # One thread an engine call: shards are played side by side, one worker thread each.
    engine: RolloutEngine = load(ENGINES, name)(num_threads=1)
    return engine


@cache
def _learner(config: UpdateConfig) -> Learner:
    learner: Learner = load(LEARNERS, config.learner)(config, num_threads=Runtime().threads)
    return learner
