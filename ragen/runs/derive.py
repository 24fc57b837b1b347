"""Derivation: updates repeated on stored rollouts to rebuild a checkpoint, each verified by its digest.

learner at a checkpoint, manifest of the update that followed --repeat_update--> Step: digests compared

The learner runs update after update, as in the run itself (`loaded_learner`); nothing is written but the policy
(`newest_policies`).
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from starpo.ragen.agents.policy.complete import complete_in_place
from starpo.ragen.config.device import Device
from starpo.ragen.core.counts import duration
from starpo.ragen.core.errors import DerivationError
from starpo.ragen.core.identity import code_identity
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.learners.learner import Learner, UpdateResult
from starpo.ragen.runs.newest_policies import NewestPolicies
from starpo.ragen.runs.stored_policy import complete_folder
from starpo.ragen.runs.update import run_update, update_code, update_config
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.folders import digest_of
from starpo.ragen.store.artifacts.provenance import collect
from starpo.ragen.store.keeping.recipe import Recipe, iteration_of
from starpo.schemas.digest import content_digest
from starpo.schemas.manifest import FileEntry, Manifest

Proof = Literal["checkpoint", "samples", "none"]
"""Proof that a checkpoint is the original one: its digest; or, if its manifest is lost, the digest of the samples of
the update that made it; 'none' if the digests differ because the learner is not deterministic."""

_TELL_EVERY_S = 20.0
_log = logging.getLogger(__name__)
_WEIGHTS = ("model", "adapter_model")
"""How the names of a policy's weights begin."""


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
        learner: A learner that holds it until the context ends.
        recipe: The recipe it was derived by.
        steps: The updates, in order; at least one.
    """

    learner: Learner
    recipe: Recipe
    steps: tuple[Step, ...]

    @property
    def proof(self) -> Proof:
        """Proof of the last step, which depends on all earlier ones."""
        return self.steps[-1].proof

    def write(self, store: Store, folder: str) -> None:
        """Write the checkpoint into an empty folder, with the weights of its base if it holds adapters."""
        self.learner.save(folder, self.recipe.key)
        complete_in_place(folder, lambda base: complete_folder(store, base))


def repeat_update(
    store: Store, learner: Learner, policies: NewestPolicies, made: Manifest, recipe: Recipe, *, must_be_proved: bool
) -> Step:
    """Repeat one update of a recipe, and compare the result with the original; the store is only read.

    Args:
        store: Store of its inputs.
        learner: Learner at the checkpoint that the update starts from; changed in place.
        policies: Take the new policy.
        made: Manifest that describes the update.
        recipe: The recipe that it belongs to.
        must_be_proved: Whether to fail if it need not have given the original.

    Raises:
        DerivationError: If a deterministic learner gave another result than the original, or proof is lacking.
        ArtifactDamagedError: If a rollout differs from what was written.
    """
    assert made.seed is not None
    result = run_update(store, learner, made.settings, made.inputs, made.seed)
    with new_policy(policies, store, learner, made.key, like=recipe.start) as files:
        step = _compared(store, made, files, result, learner.is_deterministic)
        if must_be_proved and step.proof == "none":
            raise _unproved(made, recipe)
    return step


def telling(num_updates: int) -> Callable[[Step], None]:
    """Return a callback that says, now and then, how many of so many updates are repeated, and how long the rest takes.

    A small policy's are over before there is anything to say.
    """
    begin = last = time.monotonic()
    num_done = 0

    def tell(_: Step) -> None:
        nonlocal num_done, last
        num_done += 1
        now = time.monotonic()
        if num_done < num_updates and now - last >= _TELL_EVERY_S:
            left = duration((now - begin) / num_done * (num_updates - num_done))
            _log.warning("%d of %d updates are repeated, about %s left", num_done, num_updates, left)
            last = now

    return tell


@contextmanager
def new_policy(
    policies: NewestPolicies, store: Store, learner: Learner, key: str, *, like: str
) -> Iterator[list[FileEntry]]:
    """Context manager: the learner's policy, in a folder that players find under this key once the block has succeeded.

    If the block fails, what the learner holds is not taken for that checkpoint either.

    Args:
        policies: Take the policy.
        store: Has the base of adapters.
        learner: The learner, after its update.
        key: Key of the checkpoint.
        like: Key of a checkpoint, perhaps dropped, whose policy is as large.

    Yields:
        The entries of all files of the checkpoint.

    Raises:
        StoreError: If the policy cannot be written.
    """
    files = store.lasting_manifest("checkpoint", like).files
    size_bytes = sum(entry.size_bytes for entry in files if entry.name.startswith(_WEIGHTS))
    try:
        with policies.new(key, size_bytes) as folder:
            entries = learner.save_policy(str(folder), key)
            complete_in_place(str(folder), lambda base: complete_folder(store, base))
            yield entries
    except BaseException:
        learner.checkpoint_key = None
        raise


def restore(store: Store, derivation: Derivation) -> Manifest:
    """Store a derived checkpoint in place of the original artifact.

    Raises:
        DerivationError: If it is not proved to be the original, from which later artifacts claim to be made.
    """
    made, step = derivation.steps[-1].made, derivation.steps[-1]
    if step.proof == "none":
        raise _unproved(made, derivation.recipe)
    dropped = store.dropped("checkpoint", made.key)
    facts = Facts(
        key=made.key,
        stage=made.stage,
        settings=made.settings,
        inputs=made.inputs,
        seed=made.seed,
        code=made.code,
        headline=dropped.headline if dropped else step.result.metrics,
        is_deterministic=step.is_deterministic,
        provenance={"timings": step.result.timings, "derived_from": derivation.recipe.start},
    )
    with store.new_folder() as folder:
        derivation.learner.save(str(folder), made.key)
        return store.take_folder("checkpoint", folder, facts)


def _compared(
    store: Store, made: Manifest, files: Sequence[FileEntry], result: UpdateResult, is_deterministic: bool
) -> Step:
    digest = digest_of(files)
    original = store.dropped("checkpoint", made.key)
    if original is not None:
        proof: Proof = "checkpoint"
        expected, actual = original.content_digest, digest
    else:
        proof = "samples"
        expected, actual = store.manifest("samples", made.key).content_digest, content_digest(result.samples)
    if expected != actual:
        is_elsewhere = Device.of(made.provenance).is_unlike(Device.here())
        if made.is_deterministic and is_deterministic and not is_elsewhere:
            raise _differs(made, proof, expected, actual)
        proof = "none"
    original_digest = None if original is None else original.content_digest
    return Step(made, digest, original_digest, proof, result, is_deterministic)


def _differs(original: Manifest, what: str, expected: str, actual: str) -> DerivationError:
    changed, commit = _changed_code(original), original.provenance.get("code")
    advice = (
        f"Code named by the settings has changed since: {'; '.join(changed)}. Check out the code that made it "
        f"({f'commit {commit}' if commit else 'its commit was not recorded'}), and run the same command there"
        if changed
        else "Results are bit-identical only on the same type of machine with the same versions"
    )
    return DerivationError(
        f"the update of iteration {iteration_of(original)}, repeated, gave another result: its {what} had digest "
        f"{expected[:12]}..., now {actual[:12]}...\n"
        f"  then: {_origin(original.provenance)}\n  here: {_origin(collect())}\n"
        f"{advice}. Nothing was written"
    )


def _unproved(made: Manifest, recipe: Recipe) -> DerivationError:
    there, here = Device.of(made.provenance), Device.here()
    is_elsewhere = there.is_unlike(here)
    reason = f"it was made on {there}, and here is {here}" if is_elsewhere else "the learner is not deterministic"
    able = (
        f"A machine like the one that made it can derive it: {_origin(made.provenance)}; this is {_origin(collect())}"
        if made.is_deterministic
        else "Nor was it where it was made, so no machine can derive it"
    )
    return DerivationError(
        f"checkpoint {recipe.key} cannot be proved to be the original: {reason}, and the update of iteration "
        f"{iteration_of(made)}, repeated, gave another result.\n{able}. Checkpoint {recipe.start} is kept: `starpo "
        "checkpoint RUN` lists its number, and a fork can continue from it. To get the derived one anyway, give "
        "`starpo checkpoint` an --output FOLDER; a run that needs its original checkpoints must keep them "
        "(checkpoint_every = 1)"
    )


def _origin(facts: Mapping[str, Any]) -> str:
    device, versions = Device.of(facts), facts.get("versions", {})
    where = device if device.is_gpu else facts.get("hardware", {}).get("cpu", "?")
    return ", ".join([*(f"{name} {versions.get(name, '?')}" for name in ("starpo", "torch", "numpy")), str(where)])


def _changed_code(made: Manifest) -> list[str]:
    """Return the roles of an update's code that has changed since, with both identities."""
    here = {role: code_identity(target) for role, target in update_code(update_config(made.settings)).items()}
    return [
        f"{role} was {quoted(identity)}, is {quoted(here.get(role))}"
        for role, identity in made.code.items()
        if here.get(role) != identity
    ]
