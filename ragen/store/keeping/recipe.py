"""`Recipe`: from which kept checkpoint, by which updates, a checkpoint can be made again.

    key -> how it was made (its manifest, or that of its samples) -> the checkpoint before it -> ... -> one that is kept

The chain is read from the artifacts' own manifests, so it needs no run, and holds for every run that shares it.
"""

from dataclasses import dataclass

from starpo.ragen.core.errors import ArtifactMissingError
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of
from starpo.schemas.manifest import Manifest

_INPUTS = {"turns": "turns", "rewards": "rewards", "selection": "selection", "reference": "checkpoint"}
"""Role of an update's input, without the number of its attempt -> its kind; the checkpoint before it is the chain
itself."""


@dataclass(frozen=True)
class Recipe:
    """How to make a checkpoint.

    Attributes:
        start: Key of the nearest kept checkpoint before it, or of itself.
        updates: The updates from there on: the manifest of each one's checkpoint or, where that is lost, of the samples
            that were stored with it under the same key.
    """

    start: str
    updates: tuple[Manifest, ...]

    @property
    def key(self) -> str:
        """Of the checkpoint that it makes."""
        return self.updates[-1].key if self.updates else self.start


def find_recipe(store: Store, key: str) -> Recipe:
    """Find out how to make a checkpoint; nothing but manifests is read.

    Raises:
        ArtifactMissingError: If it cannot be derived; the message names what is missing, and of which iteration.
        ArtifactDamagedError: If a manifest on the way is not what was written.
    """
    updates: list[Manifest] = []
    current = key
    while not store.has("checkpoint", current):
        made = how_made(store, current)
        if made is None or made.stage.name != "update":
            raise ArtifactMissingError(
                f"checkpoint {key} cannot be derived: checkpoint {current}, which it comes from, is neither stored nor "
                "made by an update whose manifest is stored. Run the flow again: it makes what is missing"
            )
        lacking = missing_inputs(store, made)
        if lacking:
            raise ArtifactMissingError(
                f"checkpoint {key} cannot be derived: {', '.join(lacking)} of iteration {iteration_of(made)} is "
                f"missing in {store.url}. Restore it from a copy, or derive a checkpoint that comes before it"
            )
        updates.append(made)
        current = made.inputs["checkpoint"]
    return Recipe(current, tuple(reversed(updates)))


def how_made(store: Store, key: str) -> Manifest | None:
    """What is known of the making of a checkpoint that is not stored: stage, settings, inputs, seed; None: nothing."""
    manifest = store.dropped("checkpoint", key)
    if manifest is None and store.has("samples", key):
        manifest = store.manifest("samples", key)
    return manifest


def missing_inputs(store: Store, update: Manifest) -> list[str]:
    """Inputs of an update that are not stored, as `kind/key`; the checkpoint before it is not looked for."""
    inputs = ((_INPUTS.get(kind_of(role)), key) for role, key in update.inputs.items())
    return [f"{kind}/{key}" for kind, key in inputs if kind is not None and not store.has(kind, key)]


def iteration_of(update: Manifest) -> int:
    """The iteration whose update it is; it ends with checkpoint `iteration + 1`."""
    return int(update.settings["iteration"])
