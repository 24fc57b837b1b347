"""`Recipe`: the kept checkpoint and the updates from which a checkpoint can be derived again.

    key -> how it was made (its manifest, or that of its samples) -> the checkpoint before it -> ... -> one that is kept

The chain is read from the artifacts' own manifests, so it needs no run, and is valid for every run that shares it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from starpo.ragen.core.errors import (
    ArtifactDamagedError,
    ArtifactMissingError,
    DerivationError,
    PolicyError,
    StarPOError,
)
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import TAUGHT, kind_of
from starpo.schemas.manifest import Manifest

_INPUTS = {"turns": "turns", "rewards": "rewards", "selection": "selection", "reference": "checkpoint"} | {
    kind: kind for kind in (*TAUGHT, "credits")
}
"""Role of an update's input, without its attempt number -> its kind; the previous checkpoint is omitted, as it is the
chain itself."""
_FAILURES: ContextVar[dict[str, StarPOError] | None] = ContextVar("failures", default=None)
"""Checkpoint -> why it could not be derived; None where that is not remembered."""


@dataclass(frozen=True)
class Recipe:
    """How to derive a checkpoint.

    Attributes:
        start: Key of the checkpoint itself if it is kept, else of the nearest kept (or held) one before it.
        updates: The updates from there on: the manifest of each one's checkpoint or, if that is lost, of the samples
            that were stored with it under the same key.
    """

    start: str
    updates: tuple[Manifest, ...]

    @property
    def key(self) -> str:
        """Key of the derived checkpoint."""
        return self.updates[-1].key if self.updates else self.start


def find_recipe(store: Store, key: str, held: str | None = None) -> Recipe:
    """Find out how to derive a checkpoint; only manifests are read.

    Args:
        store: The store of the run.
        key: Key of the checkpoint.
        held: Key of a checkpoint to start from although it is not stored, because a learner holds it.

    Raises:
        ArtifactMissingError: If it cannot be derived; the message names what is missing, and of which iteration.
        ArtifactDamagedError: If a manifest in the chain is not what was written.
        StarPOError: Within `failing_once`, the error of a checkpoint that it comes from.
    """
    failures = _FAILURES.get() or {}
    updates: list[Manifest] = []
    current = key
    while current != held and not store.has("checkpoint", current):
        if current in failures:
            raise failures[current]
        made = how_made(store, current)
        if made is None or made.stage.name != "update":
            raise ArtifactMissingError(
                f"checkpoint {key} cannot be derived: checkpoint {current}, which it comes from, is neither stored nor "
                "made by an update whose manifest is stored. Run the flow again to recreate what is missing"
            )
        lacking = missing_inputs(store, made)
        if lacking:
            raise ArtifactMissingError(
                f"checkpoint {key} cannot be derived: {', '.join(lacking)} of iteration {iteration_of(made)} is "
                f"missing in {store.url}. Restore it from a copy, or derive an earlier checkpoint"
            )
        updates.append(made)
        current = made.inputs["checkpoint"]
    return Recipe(current, tuple(reversed(updates)))


@contextmanager
def failing_once() -> Iterator[None]:
    """Context manager: a checkpoint that cannot be derived is tried once; those that come from it fail likewise.

    Otherwise each of them walks, and repeats, the same updates back to the checkpoint that is kept.
    """
    token = _FAILURES.set({})
    try:
        yield
    finally:
        _FAILURES.reset(token)


@contextmanager
def deriving(key: str) -> Iterator[None]:
    """Context manager: a lasting error in it is why this checkpoint cannot be derived, see `failing_once`."""
    try:
        yield
    except (ArtifactMissingError, ArtifactDamagedError, DerivationError, PolicyError) as error:
        failures = _FAILURES.get()
        if failures is not None:
            failures[key] = error
        raise


def how_made(store: Store, key: str) -> Manifest | None:
    """Return a manifest that records how a checkpoint that is not stored was made (stage, settings, inputs, seed); None
    if there is none."""
    manifest = store.dropped("checkpoint", key)
    if manifest is None and store.has("samples", key):
        manifest = store.manifest("samples", key)
    return manifest


def missing_inputs(store: Store, update: Manifest) -> list[str]:
    """List inputs of an update that are not stored, as `kind/key`; the previous checkpoint is not checked."""
    inputs = ((_INPUTS.get(kind_of(role)), key) for role, key in update.inputs.items())
    return [f"{kind}/{key}" for kind, key in inputs if kind is not None and not store.has(kind, key)]


def iteration_of(update: Manifest) -> int:
    """Return the iteration of an update; it ends with checkpoint `iteration + 1`."""
    return int(update.settings["iteration"])
