"""Derivation: updates repeated on stored rollouts to rebuild a checkpoint, each verified by its digest.

    Recipe -> load the kept checkpoint -> update, save, compare; update, save, compare; ... -> folder

The learner runs update after update without reading back what it wrote, as in the run itself. Where settings change in
between, another learner continues from the last checkpoint. Only one intermediate checkpoint is on disk at a time.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from starpo.ragen.agents.policy.complete import complete
from starpo.ragen.config.device import Device
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import ArtifactDamagedError, StarPOError
from starpo.ragen.core.identity import code_identity
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.learners.learner import Learner, UpdateResult
from starpo.ragen.runs.stored_policy import complete_folder
from starpo.ragen.runs.update import run_update, update_code, update_config
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.folders import folder_digest
from starpo.ragen.store.artifacts.provenance import collect
from starpo.ragen.store.keeping.recipe import Recipe, iteration_of
from starpo.schemas.digest import content_digest
from starpo.schemas.manifest import Manifest

LearnerFor = Callable[[UpdateConfig], Learner]
"""Returns the learner for the updates of a configuration."""

Proof = Literal["checkpoint", "samples", "none"]
"""Proof that a checkpoint is the original one: its digest; or, if its manifest is lost, the digest of the samples of
the update that made it; 'none' if the digests differ because the learner is not deterministic."""


class DerivationError(StarPOError):
    """A repeated update gave another result than the original one."""


@dataclass(frozen=True)
class Step:
    """One repeated update.

    Attributes:
        made: The manifest that describes the update.
        digest: Content digest of the resulting checkpoint.
        original_digest: Content digest of the original checkpoint; None if its manifest is lost.
        proof: Proof that the two are the same.
        result: Result of the update.
        is_deterministic: Whether the learner is deterministic.
    """

    made: Manifest
    digest: str
    original_digest: str | None
    proof: Proof
    result: UpdateResult
    is_deterministic: bool


@dataclass(frozen=True)
class Derivation:
    """Derived checkpoint.

    Attributes:
        folder: Its folder, which exists until the context ends.
        recipe: The recipe it was derived by.
        steps: The updates, in order; at least one.
    """

    folder: str
    recipe: Recipe
    steps: tuple[Step, ...]

    @property
    def proof(self) -> Proof:
        """Proof of the last step, which depends on all earlier ones."""
        return self.steps[-1].proof


@contextmanager
def derive(
    store: Store, recipe: Recipe, learner_for: LearnerFor, on_step: Callable[[Step], None] = lambda _: None
) -> Iterator[Derivation]:
    """Carry out a recipe in a temporary folder; the store is only read.

    Args:
        store: Store of its inputs.
        recipe: Recipe with at least one update.
        learner_for: See `LearnerFor`.
        on_step: Called after every update.

    Yields:
        The derived checkpoint.

    Raises:
        DerivationError: If a deterministic learner gave another result than the original.
        ArtifactDamagedError: If the kept checkpoint or a rollout differs from what was written.
    """
    assert recipe.updates
    try:
        folder, key = complete_folder(store, recipe.start), recipe.start
    except ArtifactDamagedError as error:
        raise ArtifactDamagedError(
            f"checkpoint {recipe.key} is derived from checkpoint {recipe.start}, the nearest one kept, but that is "
            f"damaged. Delete it, and derivation starts from the one before it.\n{error}"
        ) from error
    steps: list[Step] = []
    before: Learner | None = None
    with tempfile.TemporaryDirectory(prefix="derive-") as root:
        for made in recipe.updates:
            learner = learner_for(update_config(made.settings))
            reference = made.inputs.get("reference")
            if before not in (None, learner):  # it reads the previous learner's folder, where adapters lack their base
                folder = complete(folder, lambda base: complete_folder(store, base))
            learner.load(folder, key, complete_folder(store, reference) if reference else None)
            assert made.seed is not None
            result = run_update(store, learner, made.settings, made.inputs, made.seed)
            before, key, folder = learner, made.key, str(Path(root, made.key))
            learner.save(folder, key)
            step = _compared(store, made, folder, result, learner.is_deterministic)
            if steps:
                shutil.rmtree(Path(root, steps[-1].made.key))
            steps.append(step)
            on_step(step)
        yield Derivation(folder, recipe, tuple(steps))


def restore(store: Store, derivation: Derivation) -> Manifest:
    """Store a derived checkpoint in place of the original artifact.

    Raises:
        DerivationError: If it is not proved to be the original, from which later artifacts claim to be made.
    """
    made, step = derivation.steps[-1].made, derivation.steps[-1]
    if step.proof == "none":
        there, here = Device.of(made.provenance), Device.here()
        is_elsewhere = there.is_unlike(here)
        reason = f"it was made on {there}, and here is {here}" if is_elsewhere else "the learner is not deterministic"
        raise DerivationError(
            f"checkpoint {made.key} was derived, but cannot be proved to be the original: {reason}.\nSo it was not "
            "stored in the original's place. To get it anyway, give `ragen checkpoint` an --output FOLDER; a run that "
            "needs its original checkpoints must keep them (checkpoint_every = 1)"
        )
    dropped = store.dropped("checkpoint", made.key)
    return store.put_folder(
        "checkpoint",
        derivation.folder,
        Facts(
            key=made.key,
            stage=made.stage,
            settings=made.settings,
            inputs=made.inputs,
            seed=made.seed,
            code=made.code,
            headline=dropped.headline if dropped else step.result.metrics,
            is_deterministic=step.is_deterministic,
            provenance={"timings": step.result.timings, "derived_from": derivation.recipe.start},
        ),
    )


def _compared(store: Store, made: Manifest, folder: str, result: UpdateResult, is_deterministic: bool) -> Step:
    digest = folder_digest(Path(folder))
    original = store.dropped("checkpoint", made.key)
    if original is not None:
        proof: Proof = "checkpoint"
        expected, found = original.content_digest, digest
    else:
        proof = "samples"
        expected, found = store.manifest("samples", made.key).content_digest, content_digest(result.samples)
    if expected != found:
        is_elsewhere = Device.of(made.provenance).is_unlike(Device.here())
        if made.is_deterministic and is_deterministic and not is_elsewhere:
            raise _differs(made, proof, expected, found)
        proof = "none"
    original_digest = None if original is None else original.content_digest
    return Step(made, digest, original_digest, proof, result, is_deterministic)


def _differs(original: Manifest, what: str, expected: str, found: str) -> DerivationError:
    def origin(facts: dict[str, Any]) -> str:
        cpu, versions = facts.get("hardware", {}).get("cpu", "?"), facts.get("versions", {})
        parts = [*(f"{name} {versions.get(name, '?')}" for name in ("starpo", "torch", "numpy")), str(cpu)]
        return ", ".join([*parts, str(Device.of(facts))] if Device.of(facts).is_gpu else parts)

    changed, commit = _changed_code(original), original.provenance.get("code")
    advice = (
        f"Code named by the settings has changed since: {'; '.join(changed)}. Check out the code that made it "
        f"({f'commit {commit}' if commit else 'its commit was not recorded'}), and run the same command there"
        if changed
        else "Results are bit-identical only on the same type of machine with the same versions"
    )
    return DerivationError(
        f"the update of iteration {iteration_of(original)}, repeated, gave another result: its {what} had digest "
        f"{expected[:12]}..., now {found[:12]}...\n"
        f"  then: {origin(original.provenance)}\n  here: {origin(collect())}\n"
        f"{advice}. Nothing was written"
    )


def _changed_code(made: Manifest) -> list[str]:
    """Return the roles of an update's code that has changed since, with both identities."""
    here = {role: code_identity(target) for role, target in update_code(update_config(made.settings)).items()}
    return [
        f"{role} was {quoted(identity)}, is {quoted(here.get(role))}"
        for role, identity in made.code.items()
        if here.get(role) != identity
    ]
