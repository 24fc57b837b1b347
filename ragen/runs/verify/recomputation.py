"""The work of a stage again, in a scratch store, or the reason why it is not done again.

Tasks are called as plain functions, without Prefect, so that engine and learner stay loaded. A learner continues from
its state if its last update gave the stored checkpoint, by digest; otherwise the next update starts from the stored
one.
"""

from dataclasses import dataclass, field

from starpo.ragen.config.device import Device
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import (
    ArtifactDamagedError,
    ArtifactMissingError,
    DerivationError,
    StoreError,
    first_line,
)
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.scratch import Scratch
from starpo.ragen.runs.verify.unreplayable import unreplayable
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of
from starpo.schemas.manifest import Manifest

ARITHMETIC = ("reward", "variance_filter", "diagnose")
"""Stages that depend on stored rows alone: no machine and no version excuses another result (beyond rounding)."""


class NotComputedError(Exception):
    """A stage is not recomputed.

    Attributes:
        verdict: Verdict on its artifacts.
    """

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


@dataclass(frozen=True)
class Recomputation:
    """Does the work of stages again.

    Attributes:
        store: Store of the run; only read.
        scratch: Temporary store in front of it, which holds inputs and outputs.
        config: Settings of the run.
        placement: Where stages play and learn.
        sound: Kinds and keys of the artifacts that are known to be as written.
    """

    store: Store
    scratch: Scratch
    config: StarPOConfig
    placement: ModelPlacement
    sound: set[tuple[str, str]] = field(default_factory=set)

    def compute(self, visit: Visit) -> Keys:
        """Run the stage's work in the scratch store.

        Raises:
            NotComputedError: If it cannot be run, or need not give the same result.
        """
        manifests = (self.scratch.manifest(kind, key) for kind, key in visit.outputs.items())
        manifest = next((manifest for manifest in manifests if manifest is not None), None)
        self._check_repeatable(visit, manifest)
        assert visit.work is not None
        for role, key in visit.inputs.items():
            kind = _kind_of(role)
            if kind == "checkpoint" and not visit.work.settings.get("has_weights", True):
                continue  # the stage ran without it
            try:
                self.provide(kind, key)
            except (ArtifactMissingError, ArtifactDamagedError) as error:
                raise NotComputedError(Verdict.DAMAGED, f"its input cannot be used: {first_line(error)}") from error
        if visit.stage == "evaluate":
            self._check_lineage(visit.inputs["checkpoint"], manifest)
        for kind, key in visit.outputs.items():
            self.scratch.discard(kind, key)
        return visit.work.carry_out(self.scratch.store, self.placement)

    def provide(self, kind: str, key: str) -> None:
        """Make an input available in the scratch store; a dropped checkpoint is derived if it is not there yet."""
        if not self.scratch.has(kind, key):
            if self.store.dropped(kind, key) is None:
                self._check_sound(kind, key)
            else:
                self._derive(key)
        self.scratch.provide(kind, key)

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

    def check_can_be_played(self, visit: Visit, manifest: Manifest | None) -> None:
        """Check that the environment that a stage played, if any, can be replayed.

        Raises:
            NotComputedError: If it cannot be replayed.
        """
        settings: EnvironmentSettings | None = None
        if visit.stage == "evaluate":
            settings = self.cells.get(visit.cell)
        elif visit.stage == "rollout" or (
            visit.stage == "warm_start" and visit.work and "environment" in visit.work.settings
        ):
            settings = self.config.environment
        reason = unreplayable(settings, manifest) if settings else ""
        if reason:
            raise NotComputedError(Verdict.NOT_SHOWN, reason)

    @property
    def cells(self) -> dict[str, EnvironmentSettings]:
        """Settings of the environments that evaluations play, by name of the cell."""
        return {self.config.environment.type: self.config.environment} | self.config.evaluation.variants

    def _check_repeatable(self, visit: Visit, manifest: Manifest | None) -> None:
        if visit.is_misplaced:
            raise NotComputedError(Verdict.NOT_SHOWN, "it is other work than its place in the record requires")
        if visit.work is None:
            raise NotComputedError(Verdict.NOT_SHOWN, "it came from elsewhere and cannot be recomputed here")
        self.check_can_be_played(visit, manifest)
        if manifest is None or visit.stage in ARITHMETIC:
            return
        if not manifest.is_deterministic:
            raise NotComputedError(Verdict.NOT_SHOWN, "its manifest says that the work is not deterministic")
        there, here = Device.of(manifest.provenance), Device.here()
        if there.is_unlike(here) and _follows_the_device(visit.work):
            raise NotComputedError(Verdict.NOT_SHOWN, f"made on {there}, here is {here}")

    def _check_lineage(self, checkpoint: str, manifest: Manifest | None) -> None:
        """Check that a checkpoint's training data are stored as completely as when its panel was played.

        They divide the panel into seen and unseen states.

        Raises:
            NotComputedError: If they cannot be read, or more of them are missing.
        """
        from starpo.ragen.runs.training_states import training_states

        try:
            unknown = training_states(self.store, checkpoint).num_unknown
        except StoreError as error:
            what = f"what its checkpoint was trained on cannot be read: {first_line(error)}"
            raise NotComputedError(Verdict.DAMAGED, what) from error
        name = "num_unknown_origins"
        stored = [value for path, value in (manifest.headline if manifest else {}).items() if path.endswith(name)]
        if unknown > (stored[0] if stored else 0.0):
            what = f"{unknown} stages of its checkpoint's training are no longer in the store"
            raise NotComputedError(Verdict.NOT_SHOWN, what)

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


def _follows_the_device(work: Work) -> bool:
    """Whether a stage that computes with torch does so on the GPU if there is one: the embedded policy's warm start and
    copies of pretrained ones do not."""
    return work.stage.name != "warm_start" or "fine_tuning" in work.settings["policy"]


def _kind_of(role: str) -> str:
    """Return the kind of the artifact behind an input of this role."""
    kind = kind_of(role).removeprefix("base_").removeprefix("branch_").removeprefix("before_")
    return "checkpoint" if kind in ("reference", "before") else kind
