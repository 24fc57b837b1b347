"""What stages and checks read again: artifacts of the verified store, checked to be as written, or derived.

original store -> VerifiedInputs.provide -> scratch store -> recomputation, stored_checks
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from starpo.ragen.core.errors import ArtifactDamagedError, DerivationError, first_line
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.verify.scratch import Scratch
from starpo.ragen.runs.verify.verdict import NotComputedError, Verdict
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import of_kind, read_attempts


@dataclass(frozen=True)
class VerifiedInputs:
    """Provides artifacts in a scratch store.

    Attributes:
        store: Store of the run; only read.
        scratch: Temporary store in front of it.
        placement: Where checkpoints are derived, and stages recomputed.
        sound: Kinds and keys of the artifacts that are known to be as written.
    """

    store: Store
    scratch: Scratch
    placement: ModelPlacement
    sound: set[tuple[str, str]] = field(default_factory=set)

    def provide(self, kind: str, key: str) -> None:
        """Make an input available in the scratch store; a dropped checkpoint is derived if it is not there yet."""
        if not self.scratch.has(kind, key):
            if self.store.dropped(kind, key) is None:
                self._check_sound(kind, key)
            else:
                self._derive(key)
        self.scratch.provide(kind, key)

    def folder(self, kind: str, key: str) -> str:
        """Return a folder on this machine with the files of an artifact; see `provide`."""
        self.provide(kind, key)
        return self.scratch.store.local_folder(kind, key)

    def table(self, kind: str, inputs: Mapping[str, str]) -> pa.Table:
        """Return the rows of a stage's inputs of a kind, of all attempts."""
        for key in of_kind(inputs, kind):
            self.scratch.provide(kind, key)
        return read_attempts(self.scratch.store, kind, inputs)

    def _derive(self, key: str) -> None:
        """Derive a dropped checkpoint into the scratch store.

        Raises:
            NotComputedError: If an update gives another result here. That is judged where the update is verified.
        """
        from starpo.ragen.runs.derive import restore
        from starpo.ragen.store.keeping.recipe import find_recipe

        try:
            with self.placement.learner.derive(self.store, find_recipe(self.store, key)) as derivation:
                restore(self.scratch.store, derivation)
        except DerivationError as error:
            reason = f"its input checkpoint/{key} cannot be derived: {first_line(error)}"
            raise NotComputedError(Verdict.NOT_SHOWN, reason) from error
        self.scratch.keep_as_stand_in("checkpoint", key)

    def _check_sound(self, kind: str, key: str) -> None:
        """Check that an input is as written: its manifest, its bytes and its contents.

        Raises:
            ArtifactDamagedError: If it is missing or differs from what was written.
        """
        if (kind, key) not in self.sound:
            fault = self.scratch.read(kind, key).fault
            if fault:
                raise ArtifactDamagedError(fault)
            self.sound.add((kind, key))
