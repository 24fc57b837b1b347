"""`LoadedLearner`: the learner of a run, kept loaded between stages, and the policies that it has just made.

    checkpoint, settings --at--> learner at that checkpoint
    dropped one --Recipe--> learner at a kept one: update, hash, compare; update, hash, compare; ... -> learner there

Stages are functions of stored inputs; this only avoids loading models again. `Learner.load` is a no-op if the learner
is at the requested checkpoint already.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from threading import RLock
from typing import TYPE_CHECKING, cast

from starpo.ragen.agents.policy.complete import complete_in_place
from starpo.ragen.config.device import Device
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import ArtifactDamagedError, StarPOError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import LEARNERS
from starpo.ragen.learning.learners.learner import Learner
from starpo.ragen.runs.newest_policies import NewestPolicies
from starpo.ragen.runs.players import Players
from starpo.ragen.runs.stored_policy import complete_folder
from starpo.ragen.runs.update import update_config
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.recipe import Recipe, deriving, find_recipe
from starpo.schemas.manifest import Manifest

if TYPE_CHECKING:
    from starpo.ragen.runs.derive import Derivation, Step

_log = logging.getLogger(__name__)


class LoadedLearner:
    """At most one learner, and the newest policies; closed with the run.

    A rollout beside an update may need the learner, too, to derive the policy that it plays. One thread at a time moves
    the learner to another checkpoint.

    Attributes:
        policies: Policies that its updates have just made, for the players.
    """

    def __init__(self, players: Players) -> None:
        """Load nothing yet.

        Args:
            players: The players of its policies.
        """
        self.policies = NewestPolicies()
        self._players = players
        self._learner: Learner | None = None
        self._config = ""
        self._announced: set[tuple[Device, Device]] = set()
        self._lock = RLock()

    def of(self, config: UpdateConfig) -> Learner:
        """Return the learner for this configuration, at any checkpoint; one with another configuration is released."""
        with self._lock:
            if self._learner is None or not self._is_of(config):
                self._release()
                self._learner = load(LEARNERS, config.learner)(config, Runtime.current().threads)
                self._config = config.model_dump_json()
            return self._learner

    def at(self, store: Store, checkpoint: str, config: UpdateConfig, reference: str | None) -> Learner:
        """Return the learner for this configuration, loaded at this checkpoint, which is derived if dropped.

        Raises:
            ArtifactMissingError: If the checkpoint does not exist and cannot be derived.
            DerivationError: If the derived checkpoint is not the original, or cannot be proved to be.
        """
        with self._lock:
            reference_folder = self.policy_folder(store, reference) if reference else None
            with self._whole(store, checkpoint, config) as folder:
                learner = self.of(config)
                learner.load(folder, checkpoint, reference_folder)
            if store.was_made("checkpoint", checkpoint):
                self._announce(Device.of(store.lasting_manifest("checkpoint", checkpoint).provenance), Device.here())
            return learner

    def policy_folder(self, store: Store, checkpoint: str) -> str:
        """Return a local folder with this checkpoint's policy; more may be in it. A dropped checkpoint is derived.

        The folder of a checkpoint that is not stored lasts until two newer ones have been made, or until `close`. If
        actors on other machines play, a derived checkpoint is stored, because they read the store.

        Raises:
            ArtifactMissingError, DerivationError: As for `at`.
        """
        with self._lock:
            if folder := self.policies.find(checkpoint):
                return folder
            if store.dropped("checkpoint", checkpoint) is None:
                return self._stored_folder(store, checkpoint)
            if self._players.are_elsewhere:
                self.bring_back(store, checkpoint)
                return self._stored_folder(store, checkpoint)
            learner = self._holder(checkpoint) or self._derived(store, checkpoint)
            if self.policies.find(checkpoint) is None:
                from starpo.ragen.runs.derive import new_policy

                with new_policy(self.policies, store, learner, checkpoint, like=checkpoint):
                    pass
            return cast(str, self.policies.find(checkpoint))

    @contextmanager
    def derive(
        self,
        store: Store,
        recipe: Recipe,
        on_step: "Callable[[Step], None] | None" = None,
        *,
        must_be_proved: bool = True,
    ) -> "Iterator[Derivation]":
        """Carry out a recipe; the store is only read. If it is proved, learner and policy stay there afterwards.

        Args:
            store: Store of its inputs.
            recipe: Recipe with at least one update.
            on_step: Called after every update. None: what is left is logged now and then.
            must_be_proved: Whether to fail at the first update that need not have given the original.

        Yields:
            The derived checkpoint.

        Raises:
            DerivationError: If a deterministic learner gave another result than the original, or proof is lacking.
            ArtifactDamagedError: If the kept checkpoint or a rollout differs from what was written.
        """
        from starpo.ragen.runs.derive import Derivation, repeat_update, telling

        assert recipe.updates
        on_step = on_step or telling(len(recipe.updates))
        steps: list[Step] = []
        for made in recipe.updates:
            learner = self._before(store, made, recipe)
            steps.append(repeat_update(store, learner, self.policies, made, recipe, must_be_proved=must_be_proved))
            on_step(steps[-1])
        try:
            yield Derivation(learner, recipe, tuple(steps))
        finally:
            if steps[-1].proof == "none":
                learner.checkpoint_key = None
                self.policies.discard(recipe.key)

    def bring_back(self, store: Store, checkpoint: str) -> None:
        """Derive a dropped checkpoint, and store it.

        Raises:
            ArtifactMissingError, DerivationError: As for `at`.
        """
        from starpo.ragen.runs.derive import restore

        with self._lock, self.derive(store, find_recipe(store, checkpoint)) as derivation:
            restore(store, derivation)

    @contextmanager
    def restored(self, store: Store, checkpoints: Iterable[str]) -> Iterator[None]:
        """Context manager: dropped checkpoints, back in the store for other processes, and dropped at the end.

        One that cannot be derived is left to those who need it: they get the error.
        """
        done: list[str] = []
        try:
            for checkpoint in checkpoints:
                with suppress(StarPOError):
                    self.bring_back(store, checkpoint)
                    done.append(checkpoint)
            yield
        finally:
            for checkpoint in done:
                store.drop("checkpoint", checkpoint)

    def close(self) -> None:
        """Release the learner and its policies; what is needed again is loaded from the store."""
        with self._lock:
            self.policies.clear()
            self._release()

    @contextmanager
    def _whole(self, store: Store, checkpoint: str, config: UpdateConfig) -> Iterator[str | None]:
        """Context manager: a folder with a whole checkpoint; None if the learner of this configuration holds it."""
        holder = self._holder(checkpoint)
        if holder is None and store.dropped("checkpoint", checkpoint) is not None:
            holder = self._derived(store, checkpoint)
        if holder is not None and self._is_of(config):
            yield None
        elif store.has("checkpoint", checkpoint) or holder is None:
            yield self._stored_folder(store, checkpoint)
        else:  # settings have changed since
            with TemporaryDirectory(prefix="ragen-checkpoint-") as folder:
                holder.save(folder, checkpoint)
                del holder  # the next learner takes its memory
                complete_in_place(folder, lambda base: self.policy_folder(store, base))
                yield folder

    def _stored_folder(self, store: Store, checkpoint: str) -> str:
        return complete_folder(store, checkpoint, lambda base: self.policy_folder(store, base))

    def _derived(self, store: Store, checkpoint: str) -> Learner:
        with deriving(checkpoint):
            recipe = find_recipe(store, checkpoint, self._learner.checkpoint_key if self._learner else None)
            _log.warning(
                "checkpoint %s was not kept: %d updates are repeated from checkpoint %s",
                *(checkpoint[:12], len(recipe.updates), recipe.start[:12]),
            )
            with self.derive(store, recipe) as derivation:
                return derivation.learner

    def _before(self, store: Store, made: Manifest, recipe: Recipe) -> Learner:
        """Return the learner at the checkpoint that an update of this recipe starts from."""
        config, reference = update_config(made.settings), made.inputs.get("reference")
        try:
            return self.at(store, made.inputs["checkpoint"], config, reference)
        except ArtifactDamagedError as error:
            raise ArtifactDamagedError(
                f"checkpoint {recipe.key} is derived from checkpoint {recipe.start}, the nearest one kept, but that is "
                f"damaged. Delete it, and derivation starts from the one before it.\n{error}"
            ) from error

    def _holder(self, checkpoint: str) -> Learner | None:
        """Return the learner if it is at this checkpoint."""
        return self._learner if self._learner and self._learner.checkpoint_key == checkpoint else None

    def _is_of(self, config: UpdateConfig) -> bool:
        return self._config == config.model_dump_json()

    def _release(self) -> None:
        learner, self._learner = self._learner, None
        getattr(learner, "close", bool)()

    def _announce(self, there: Device, here: Device) -> None:
        """Say once that a policy made on another device is trained here."""
        if there.is_unlike(here) and (there, here) not in self._announced:
            self._announced.add((there, here))
            _log.warning(
                "the checkpoint was made on %s and is trained on %s, which rounds differently, so digests will "
                "differ from here on, and `starpo verify` shows each part on a device like the one that made it",
                there,
                here,
            )
