"""The work of a stage again, in a scratch store, or the reason why it is not done again.

visit, inputs -> recompute -> keys in the scratch store, or NotComputedError

Tasks are called as plain functions, without Prefect, so that engine and learner stay loaded. A learner continues from
its state if its last update gave the stored checkpoint, by digest; otherwise the next update starts from the stored
one.
"""

from starpo.ragen.config.device import Device
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, StoreError, first_line
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.inputs import VerifiedInputs
from starpo.ragen.runs.verify.unreplayable import check_can_be_played
from starpo.ragen.runs.verify.verdict import NotComputedError, Verdict
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of
from starpo.schemas.manifest import Manifest

ARITHMETIC = ("reward", "variance_filter", "diagnose", "curriculum")
"""Stages that depend on stored rows alone: no machine and no version excuses another result (beyond rounding)."""


def recompute(visit: Visit, inputs: VerifiedInputs, config: StarPOConfig) -> Keys:
    """Run a stage's work in the scratch store.

    Args:
        visit: The stage.
        inputs: Provides its inputs; the outputs are written beside them.
        config: Settings of the run.

    Raises:
        NotComputedError: If it cannot be run, or need not give the same result.
    """
    scratch = inputs.scratch
    manifests = (scratch.manifest(kind, key) for kind, key in visit.outputs.items())
    manifest = next((manifest for manifest in manifests if manifest is not None), None)
    work = _repeatable_work(visit, manifest, config)
    for role, key in visit.inputs.items():
        kind = _kind_of(role)
        if kind == "checkpoint" and not work.settings.get("has_weights", True):
            continue  # the stage ran without it
        try:
            inputs.provide(kind, key)
        except (ArtifactMissingError, ArtifactDamagedError) as error:
            raise NotComputedError(Verdict.DAMAGED, f"its input cannot be used: {first_line(error)}") from error
    if visit.stage == "evaluate":
        _check_lineage(inputs.store, visit.inputs["checkpoint"], manifest)
    for kind, key in visit.outputs.items():
        scratch.discard(kind, key)
    return work.carry_out(scratch.store, inputs.placement)


def _repeatable_work(visit: Visit, manifest: Manifest | None, config: StarPOConfig) -> Work:
    """Return the work of a stage, by whose manifest it gives the same result here.

    Raises:
        NotComputedError: If it need not, or there is none.
    """
    if visit.is_misplaced:
        raise NotComputedError(Verdict.NOT_SHOWN, "it is other work than its place in the record requires")
    if visit.work is None:
        reason = visit.excuse or "it came from elsewhere and cannot be recomputed here"
        raise NotComputedError(Verdict.NOT_SHOWN, reason)
    check_can_be_played(visit, config, manifest)
    if visit.stage == "teacher" and config.teacher is not None and config.teacher.type == "server":
        raise NotComputedError(Verdict.NOT_SHOWN, "a server said it, which is not asked again")
    if manifest is None or visit.stage in ARITHMETIC:
        return visit.work
    if not manifest.is_deterministic:
        raise NotComputedError(Verdict.NOT_SHOWN, "its manifest says that the work is not deterministic")
    there, here = Device.of(manifest.provenance), Device.here()
    if there.is_unlike(here) and _follows_the_device(visit.work):
        raise NotComputedError(Verdict.NOT_SHOWN, f"made on {there}, here is {here}")
    return visit.work


def _check_lineage(store: Store, checkpoint: str, manifest: Manifest | None) -> None:
    """Check that a checkpoint's training data are stored as completely as when its panel was played.

    They divide the panel into seen and unseen states.

    Raises:
        NotComputedError: If they cannot be read, or more of them are missing.
    """
    from starpo.ragen.runs.training_states import training_states

    try:
        unknown = training_states(store, checkpoint).num_unknown
    except StoreError as error:
        what = f"what its checkpoint was trained on cannot be read: {first_line(error)}"
        raise NotComputedError(Verdict.DAMAGED, what) from error
    name = "num_unknown_origins"
    stored = [value for path, value in (manifest.headline if manifest else {}).items() if path.endswith(name)]
    if unknown > (stored[0] if stored else 0.0):
        what = f"{unknown} stages of its checkpoint's training are no longer in the store"
        raise NotComputedError(Verdict.NOT_SHOWN, what)


def _follows_the_device(work: Work) -> bool:
    """Whether a stage that computes with torch does so on the GPU if there is one: the embedded policy's warm start and
    copies of pretrained ones do not."""
    return work.stage.name != "warm_start" or "fine_tuning" in work.settings["policy"]


def _kind_of(role: str) -> str:
    """Return the kind of the artifact behind an input of this role."""
    kind = kind_of(role).removeprefix("base_").removeprefix("branch_").removeprefix("before_")
    return "checkpoint" if kind in ("reference", "before") else kind
