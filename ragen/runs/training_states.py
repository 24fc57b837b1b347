"""The initial states of a checkpoint's training, from the artifacts of its lineage.

    checkpoint -> update -> turns: initial_state_digest -> ... -> warm start: initial_states.json -> TrainingStates

A checkpoint's key identifies its whole lineage, so a checkpoint has the same states in every store that still has its
rollouts, whichever run it belongs to.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow.parquet as pq

from starpo.ragen.agents.evaluation.panel import Panel
from starpo.ragen.agents.policy.initial_states import FILE
from starpo.ragen.core.errors import ArtifactMissingError
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import of_kind
from starpo.ragen.store.keeping.recipe import how_made
from starpo.schemas.manifest import Manifest


@dataclass(frozen=True)
class TrainingStates:
    """The initial states of a checkpoint's training.

    Attributes:
        digests: Digests of the states.
        num_unknown: Number of training stages (rollouts, a warm start) whose states are no longer in the store; 0 if
            `digests` is complete. The earlier training of a pretrained policy is known only if its folder records it,
            as folders written by `starpo checkpoint --output` do.
        demonstrated: Those of `digests` that the first checkpoint records: from its demonstrations, or from the
            policy's earlier training.
    """

    digests: frozenset[str]
    num_unknown: int
    demonstrated: frozenset[str] = field(default=frozenset(), compare=False)

    def seen_states(self, panel: Panel) -> frozenset[str]:
        """Return the states of a panel from which training started; empty if the panel is exhaustive."""
        return frozenset() if panel.is_exhaustive else panel.excluded_digests & self.digests

    def facts(self, panel: Panel) -> dict[str, float]:
        """Return metrics to report with success: `num_seen_prompts`, and `num_unknown_origins` if it is not 0.

        Empty for an exhaustive panel.
        """
        if panel.is_exhaustive:
            return {}
        counts = {"num_seen_prompts": float(len(self.seen_states(panel)))}
        return counts | ({"num_unknown_origins": float(self.num_unknown)} if self.num_unknown else {})


@dataclass(frozen=True)
class _Step:
    """How a checkpoint was made: its parent and its rollouts; for a first one, its initial states (None if unknown)."""

    parent: str | None
    turns: tuple[str, ...]
    states: frozenset[str] | None = frozenset()


class TrainingWalk:
    """The states of one checkpoint's training after another's.

    Steps that a checkpoint shares with the one before it are not walked again: those of a whole run take one walk.

    Attributes:
        digests, num_unknown, demonstrated: As of `TrainingStates`, at the checkpoint that it has come to.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin()

    def _begin(self) -> None:
        self._checkpoint: str | None = None
        self._rollouts: set[str] = set()
        self.digests: set[str] = set()
        self.demonstrated: frozenset[str] = frozenset()
        self.num_unknown = 0

    def come_to(self, checkpoint: str) -> None:
        """Walk on to a checkpoint; begin anew if it does not come from the one before.

        Raises:
            ArtifactDamagedError: If an artifact of the lineage is not what was written.
        """
        steps: list[_Step | None] = []  # newest first; None: of it, and of what came before, nothing is known
        current: str | None = checkpoint
        while current is not None and current != self._checkpoint:
            try:
                step: _Step | None = _step(self._store.url, current)
            except ArtifactMissingError:
                step = None
            steps.append(step)
            current = step.parent if step else None
        if current is None:
            self._begin()
        for taken in reversed(steps):
            self._take(taken)
        self._checkpoint = checkpoint

    def _take(self, step: _Step | None) -> None:
        if step is None or step.states is None:
            self.num_unknown += 1
        else:
            self.demonstrated = self.demonstrated or step.states
            self.digests |= step.states
        for turns in dict.fromkeys(step.turns if step else ()):
            if turns in self._rollouts:
                continue
            self._rollouts.add(turns)
            try:
                self.digests |= _initial_states(self._store.url, turns)
            except ArtifactMissingError:
                self.num_unknown += 1


def training_states(store: Store, checkpoint: str) -> TrainingStates:
    """Collect the states from which training of a checkpoint started.

    A rollout counts as a whole, even if the filter dropped some of its groups. Results are cached, so a run that is
    evaluated during training reads only new artifacts.

    Raises:
        ArtifactDamagedError: If an artifact of the lineage is not what was written.
    """
    walk = TrainingWalk(store)
    walk.come_to(checkpoint)
    return TrainingStates(frozenset(walk.digests), walk.num_unknown, walk.demonstrated)


@lru_cache(maxsize=16_384)
def _step(store_url: str, checkpoint: str) -> _Step:
    store = Store(store_url)
    manifest = store.manifest("checkpoint", checkpoint) if store.has("checkpoint", checkpoint) else None
    made = manifest or how_made(store, checkpoint)
    if made is None:
        raise ArtifactMissingError(f"checkpoint/{checkpoint} is not in {store.url}")
    if "checkpoint" in made.inputs:
        return _Step(made.inputs["checkpoint"], tuple(of_kind(made.inputs, "turns")))
    if manifest is not None and any(entry.name == FILE for entry in manifest.files):
        return _Step(None, (), frozenset(json.loads(store.read_file("checkpoint", checkpoint, FILE))))
    return _Step(None, (), frozenset() if _is_pretrained(made) else None)


@lru_cache(maxsize=16_384)
def _initial_states(store_url: str, turns: str) -> frozenset[str]:
    digests: set[str] = set()
    for part in Store(store_url).parts("turns", turns, should_verify=True):
        column = pq.ParquetFile(part).read(["initial_state_digest"], use_threads=False)["initial_state_digest"]
        digests.update(column.unique().to_pylist())
    return frozenset(digests)


def _is_pretrained(first: Manifest) -> bool:
    return bool(first.settings.get("policy", {}).get("type") == "pretrained")
