"""Verification stage by stage: recompute it, compare with the stored artifacts, and check these for consistency.

    visit -> inputs linked into a scratch store -> task -> outputs compared with the stored ones -> findings

Tasks are called as plain functions, without Prefect, so that engine and learner stay loaded. A learner continues from
its state if its last update gave the stored checkpoint, by digest; otherwise the next update starts from the stored
one.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.config.device import Device
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import (
    ArtifactDamagedError,
    ArtifactMissingError,
    DerivationError,
    NotAskedError,
    StoreError,
    first_line,
    named_line,
)
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import environment_type
from starpo.ragen.runs.verify.actions import episode_differences, turn_differences
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.differences import folder_difference, is_close, is_rounding, table_difference
from starpo.ragen.runs.verify.numbers import evaluation_differences, rollout_differences, update_differences
from starpo.ragen.runs.verify.origin import different_origin
from starpo.ragen.runs.verify.scratch import Scratch, Stored
from starpo.ragen.runs.verify.siblings import sibling_differences
from starpo.ragen.runs.verify.unreplayable import unreplayable
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict, summarised
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of, of_kind, read_attempts
from starpo.schemas.datasets import DATASETS
from starpo.schemas.imported import is_imported
from starpo.schemas.manifest import Manifest

LONG_WARM_START_S = 30.0
"""A warm start that took longer is recomputed only on request."""

_ARITHMETIC = ("reward", "variance_filter", "diagnose")
"""Stages that depend on stored rows alone: no machine and no version excuses another result (beyond rounding)."""


class _NotComputedError(Exception):
    """A stage is not recomputed.

    Attributes:
        verdict: Verdict on its artifacts.
    """

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


@dataclass(frozen=True)
class Verifier:
    """Verifies the stages of a run, one after the other.

    Attributes:
        store: Store of the run; only read.
        scratch: Temporary store in front of it.
        config: Settings of the run.
        with_warm_start: Recompute the warm start even if it took long.
    """

    store: Store
    scratch: Scratch
    config: StarPOConfig
    with_warm_start: bool
    _sound: set[tuple[str, str]] = field(default_factory=set)
    _passed: deque[str] = field(default_factory=deque)

    def verify(self, visit: Visit) -> list[CheckResult]:
        """Verify one stage: first compare its artifacts with recomputed ones, then check their contents."""
        computed, verdict, reason = self._computed(visit)
        stored = {kind: self.scratch.read(kind, key) for kind, key in visit.outputs.items()}
        self._sound.update((kind, key) for kind, key in visit.outputs.items() if not stored[kind].fault)
        found = list(self._results(visit, stored, computed, verdict, reason))
        self._tidy(visit, stored, computed)
        for check, kind, differences in self._inner_checks(visit, stored):
            try:
                detail = summarised(differences)
                verdict = Verdict.DIFFERENT if detail else Verdict.SAME
            except _NotComputedError as error:
                verdict, detail = error.verdict, f"it cannot be checked: {error}"
            except (ArtifactMissingError, ArtifactDamagedError) as error:
                verdict, detail = Verdict.DAMAGED, f"it cannot be checked: {first_line(error)}"
            except FOREIGN as error:  # any error that forged data cause in a check is a finding
                verdict, detail = Verdict.DIFFERENT, f"the check fails: {named_line(error)}"
            artifact = f"{kind}/{visit.outputs[kind]}"
            found.append(CheckResult(visit.iteration, visit.name, check, verdict, detail, artifact))
        return found

    def _computed(self, visit: Visit) -> tuple[Keys, Verdict, str]:
        """Recompute the stage; return its outputs, or the verdict on all of its artifacts and the reason."""
        from starpo.ragen.agents.policy.save import without_progress_bars
        from starpo.ragen.runs.placement import playing_here

        try:
            with playing_here(), without_progress_bars():  # actors on other nodes do not see the scratch store
                return self._compute(visit), Verdict.SAME, ""
        except _NotComputedError as error:
            return {}, error.verdict, str(error)
        except NotAskedError as error:
            return {}, Verdict.NOT_SHOWN, first_line(error)
        except FOREIGN as error:  # any error that damaged or forged data cause in a stage is a finding
            verdict = Verdict.NOT_SHOWN if visit.excuse else Verdict.DIFFERENT
            return {}, verdict, f"recomputing it fails: {named_line(error)}"

    def _results(
        self, visit: Visit, stored: Mapping[str, Stored], computed: Keys, verdict: Verdict, reason: str
    ) -> Iterator[CheckResult]:
        """Compare all artifacts of the stage."""
        for kind, key in visit.outputs.items():
            artifact = stored[kind]
            if artifact.fault:
                outcome = Verdict.DAMAGED, artifact.fault + self._remedy(kind, key, artifact, computed)
            elif reason:
                outcome = verdict, reason
            else:
                outcome = self._compare(visit, kind, computed[kind], artifact)
            yield CheckResult(visit.iteration, visit.name, kind, *outcome, artifact=f"{kind}/{key}")

    def _tidy(self, visit: Visit, stored: Mapping[str, Stored], computed: Keys) -> None:
        """Remove what was recomputed, except stand-ins for lost artifacts that are still needed."""
        for kind, key in computed.items():
            if kind not in stored or (stored[kind].is_dropped and visit.outputs[kind] == key):
                self.scratch.keep_as_stand_in(kind, key)
            self.scratch.discard(kind, key)
        passed = visit.inputs.get("checkpoint")
        if visit.stage == "update" and passed is not None and passed != visit.inputs.get("reference"):
            self._passed.append(passed)
            if len(self._passed) > self.config.rollout.staleness:  # a rollout may use a checkpoint that much older
                self.scratch.release("checkpoint", self._passed.popleft())

    def _remedy(self, kind: str, key: str, artifact: Stored, computed: Keys) -> str:
        """Keep the recomputed artifact as a stand-in for a damaged one; return a text that says so."""
        if computed.get(kind) != key:
            return ""
        digest = self.scratch.store.manifest(kind, key).content_digest
        if artifact.manifest is not None and artifact.manifest.content_digest != digest:
            return "; recomputed from its inputs, it differs from its manifest"
        self.scratch.keep_as_stand_in(kind, key)
        return "; its inputs reproduce it: delete what is left of it, and run the flow"

    def _compute(self, visit: Visit) -> Keys:
        """Run the stage's work in the scratch store.

        Raises:
            _NotComputedError: If it cannot be run, or need not give the same result.
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
                self._provide(kind, key)
            except (ArtifactMissingError, ArtifactDamagedError) as error:
                raise _NotComputedError(Verdict.DAMAGED, f"its input cannot be used: {first_line(error)}") from error
        if visit.stage == "evaluate":
            self._check_lineage(visit.inputs["checkpoint"], manifest)
        for kind, key in visit.outputs.items():
            self.scratch.discard(kind, key)
        return visit.work.carry_out(self.scratch.store)

    def _check_lineage(self, checkpoint: str, manifest: Manifest | None) -> None:
        """Check that a checkpoint's training data are stored as completely as when its panel was played.

        They divide the panel into seen and unseen states.

        Raises:
            _NotComputedError: If they cannot be read, or more of them are missing.
        """
        from starpo.ragen.runs.training_states import training_states

        try:
            unknown = training_states(self.store, checkpoint).num_unknown
        except StoreError as error:
            what = f"what its checkpoint was trained on cannot be read: {first_line(error)}"
            raise _NotComputedError(Verdict.DAMAGED, what) from error
        name = "num_unknown_origins"
        stored = [value for path, value in (manifest.headline if manifest else {}).items() if path.endswith(name)]
        if unknown > (stored[0] if stored else 0.0):
            what = f"{unknown} stages of its checkpoint's training are no longer in the store"
            raise _NotComputedError(Verdict.NOT_SHOWN, what)

    def _provide(self, kind: str, key: str) -> None:
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
            _NotComputedError: If an update gives another result here. That is judged where the update is verified.
        """
        from starpo.ragen.runs.derive import derive, restore
        from starpo.ragen.runs.placement import learner_at
        from starpo.ragen.store.keeping.recipe import find_recipe

        try:
            with derive(self.store, find_recipe(self.store, key), learner_at) as derivation:
                restore(self.scratch.store, derivation)
        except DerivationError as error:
            reason = f"its input checkpoint/{key} cannot be derived: {first_line(error)}"
            raise _NotComputedError(Verdict.NOT_SHOWN, reason) from error
        self.scratch.keep_as_stand_in("checkpoint", key)

    def _check_sound(self, kind: str, key: str) -> None:
        """Check that an input is as written: its manifest, its bytes and its contents.

        Raises:
            ArtifactDamagedError: If it is missing or differs from what was written.
        """
        if (kind, key) not in self._sound:
            fault = self.scratch.read(kind, key).fault
            if fault:
                raise ArtifactDamagedError(fault)
            self._sound.add((kind, key))

    def _check_repeatable(self, visit: Visit, manifest: Manifest | None) -> None:
        if visit.is_misplaced:
            raise _NotComputedError(Verdict.NOT_SHOWN, "it is other work than its place in the record requires")
        if visit.work is None:
            raise _NotComputedError(Verdict.NOT_SHOWN, "it came from elsewhere and cannot be recomputed here")
        self._check_can_be_played(visit, manifest)
        if manifest is None or visit.stage in _ARITHMETIC:
            return
        if not manifest.is_deterministic:
            raise _NotComputedError(Verdict.NOT_SHOWN, "its manifest says that the work is not deterministic")
        there, here = Device.of(manifest.provenance), Device.here()
        if there.is_unlike(here) and _follows_the_device(visit.work):
            raise _NotComputedError(Verdict.NOT_SHOWN, f"made on {there}, here is {here}")
        seconds = manifest.provenance.get("seconds")
        is_long = isinstance(seconds, int | float) and seconds > LONG_WARM_START_S
        if visit.stage == "warm_start" and is_long and not self.with_warm_start:
            raise _NotComputedError(Verdict.LEFT_OUT, f"its manifest says that it took {seconds:.0f} s")

    def _check_can_be_played(self, visit: Visit, manifest: Manifest | None) -> None:
        """Check that the environment that a stage played, if any, can be replayed.

        Raises:
            _NotComputedError: If it cannot be replayed.
        """
        settings: EnvironmentSettings | None = None
        if visit.stage == "evaluate":
            settings = self._cells.get(visit.cell)
        elif visit.stage == "rollout" or (
            visit.stage == "warm_start" and visit.work and "environment" in visit.work.settings
        ):
            settings = self.config.environment
        reason = unreplayable(settings, manifest) if settings else ""
        if reason:
            raise _NotComputedError(Verdict.NOT_SHOWN, reason)

    @property
    def _cells(self) -> dict[str, EnvironmentSettings]:
        return {self.config.environment.type: self.config.environment} | self.config.evaluation.variants

    def _compare(self, visit: Visit, kind: str, key: str, stored: Stored) -> tuple[Verdict, str]:
        """Compare an artifact with the recomputed one, which is stored under the key of this release."""
        assert stored.manifest is not None
        computed = self.scratch.store.manifest(kind, key)
        is_arithmetic = visit.stage in _ARITHMETIC
        if stored.manifest.content_digest == computed.content_digest:
            difference = _manifest_difference(stored.manifest, computed)
            return (Verdict.DIFFERENT, difference) if difference else (Verdict.SAME, "")
        if visit.stage == "update":
            _forget_learner()
        origin = different_origin(stored.manifest, computed, not is_arithmetic)
        if stored.table is not None:
            again = self.scratch.store.read_table(kind, key)
            if is_arithmetic and origin and is_rounding(stored.table, again):
                difference = _manifest_difference(stored.manifest, computed)
                return (Verdict.DIFFERENT, difference) if difference else (Verdict.SAME, "")
            difference = table_difference(stored.table, again, DATASETS[kind].key)
        elif stored.is_dropped:
            difference = "its files were dropped, and the recomputed digest differs from its manifest's"
        else:
            folders = self.store.local_folder(kind, stored.manifest.key), self.scratch.store.local_folder(kind, key)
            difference = folder_difference(*map(Path, folders))
        if visit.excuse:
            return Verdict.NOT_SHOWN, f"{visit.excuse}; {difference}"
        if is_arithmetic:
            return Verdict.DIFFERENT, difference
        if not computed.is_deterministic:
            return Verdict.NOT_SHOWN, f"on this machine the work is not deterministic; {difference}"
        if origin:
            return Verdict.NOT_SHOWN, f"it was made with {origin}; {difference}"
        return Verdict.DIFFERENT, difference

    def _inner_checks(self, visit: Visit, stored: Mapping[str, Stored]) -> Iterator[tuple[str, str, Iterator[str]]]:
        """Check the stored artifacts against each other and the environment.

        No policy takes part, so these checks hold on every machine.

        Yields:
            Name of the check, kind of the checked artifact, differences.
        """
        sound = {kind: artifact for kind, artifact in stored.items() if not artifact.fault and not artifact.is_dropped}
        if visit.stage == "rollout" and "turns" in sound:
            turns = sound["turns"].table
            yield "actions", "turns", self._action_differences(visit, sound["turns"])
            yield "texts", "turns", self._text_differences(visit, sound["turns"], sound.get("turn_images"))
            yield "numbers", "turns", rollout_differences(turns, _headline(sound["turns"]))
            search = self.config.at(visit.iteration).rollout.search
            if search is not None and "siblings" in sound:
                yield "choices", "siblings", sibling_differences(sound["siblings"].table, turns, search)
        if visit.stage == "evaluate" and "episodes" in sound:
            episodes = sound["episodes"].table
            yield "actions", "episodes", self._episode_differences(visit, sound["episodes"])
            if "metrics" in sound:
                yield (
                    "numbers",
                    "metrics",
                    evaluation_differences(episodes, sound["metrics"].table, _headline(sound["episodes"])),
                )
        if visit.stage == "update" and "samples" in sound:
            yield "tokens", "samples", self._token_differences(sound["samples"])
            config = self.config.at(visit.iteration).update
            if not visit.excuse and not visit.is_misplaced and has_arithmetic_advantages(config):
                yield "advantages", "samples", self._advantage_differences(config, sound["samples"])
        if visit.stage == "update" and "metrics" in sound and stored.get("checkpoint", Stored()).manifest is not None:
            yield "numbers", "metrics", update_differences(sound["metrics"].table, _headline(stored["checkpoint"]))

    def _episode_differences(self, visit: Visit, episodes: Stored) -> Iterator[str]:
        cells = self._cells
        if visit.cell not in cells:
            yield f"the run's settings have no cell {quoted(visit.cell)}; cells: {', '.join(cells)}"
            return
        self._check_can_be_played(visit, episodes.manifest)
        yield from episode_differences(episodes.table, cells[visit.cell])

    def _action_differences(self, visit: Visit, turns: Stored) -> Iterator[str]:
        assert turns.manifest is not None
        assert turns.table is not None
        infos = pl.Series(turns.table["info"])
        if turns.manifest.stage.name == "import" and is_imported(infos).any():
            reason = "the trajectories were imported from traces that name no actions of an environment known here"
            raise _NotComputedError(Verdict.NOT_SHOWN, reason)
        self._check_can_be_played(visit, turns.manifest)
        yield from turn_differences(turns.table, self.config.environment, self.config.agent)

    def _text_differences(self, visit: Visit, turns: Stored, turn_images: Stored | None) -> Iterator[str]:
        from starpo.ragen.agents.policy.load import load_tokenizer
        from starpo.ragen.agents.prompting.context import ContextBuilder
        from starpo.ragen.runs.verify.texts import text_differences

        assert turns.manifest is not None
        if environment_type(self.config.environment.type).plays:
            reason = f"the prompts of {self.config.environment.type} are not of its observations alone"
            raise _NotComputedError(Verdict.NOT_SHOWN, reason)
        key = turns.manifest.inputs.get("checkpoint")
        if key is None:
            reason = "the trajectories were imported without the tokenizer that made them"
            raise _NotComputedError(Verdict.NOT_SHOWN, reason)
        self._provide("checkpoint", key)
        tokenizer = load_tokenizer(self.scratch.store.local_folder("checkpoint", key))
        longest = self.config.at(visit.iteration).rollout.max_response_tokens
        contexts = ContextBuilder(tokenizer, self.config.agent, longest)
        if self.config.agent.shows_images:
            self._check_can_be_played(visit, turns.manifest)
        shown = None if turn_images is None else turn_images.table
        yield from text_differences(turns.table, self.config.environment, tokenizer, contexts, shown)

    def _token_differences(self, samples: Stored) -> Iterator[str]:
        from starpo.ragen.runs.verify.tokens import token_differences

        assert samples.manifest is not None
        inputs = samples.manifest.inputs
        turns, rewards, selection = (self._input(kind, inputs) for kind in ("turns", "rewards", "selection"))
        yield from token_differences(turns, rewards, selection, samples.table)

    def _advantage_differences(self, config: UpdateConfig, samples: Stored) -> Iterator[str]:
        from starpo.ragen.learning.learners.trajectories import assemble
        from starpo.ragen.runs.verify.advantages import advantage_differences

        assert samples.manifest is not None
        inputs = samples.manifest.inputs
        turns, rewards, selection = (self._input(kind, inputs) for kind in ("turns", "rewards", "selection"))
        kept_share = pc.mean(selection["kept"].cast(pa.float64())).as_py()
        yield from advantage_differences(assemble(turns, rewards, selection), kept_share, config, samples.table)

    def _input(self, kind: str, inputs: Mapping[str, str]) -> pa.Table:
        for key in of_kind(inputs, kind):
            self.scratch.provide(kind, key)
        return read_attempts(self.scratch.store, kind, inputs)


def _follows_the_device(work: Work) -> bool:
    """Whether a stage that computes with torch does so on the GPU if there is one: the embedded policy's warm start and
    copies of pretrained ones do not."""
    return work.stage.name != "warm_start" or "fine_tuning" in work.settings["policy"]


def _kind_of(role: str) -> str:
    """Return the kind of the artifact behind an input of this role."""
    kind = kind_of(role).removeprefix("base_").removeprefix("branch_").removeprefix("before_")
    return "checkpoint" if kind in ("reference", "before") else kind


def has_arithmetic_advantages(config: UpdateConfig) -> bool:
    """Whether the advantages of an update follow from stored turns, rewards and choices alone, without a policy."""
    is_kl_in_reward = config.kl_coefficient > 0 and config.kl_placement == "reward"
    return not is_kl_in_reward and config.needs.isdisjoint({"critic", "prm", "probabilities", "spans"})


def _headline(artifact: Stored) -> dict[str, float]:
    return artifact.manifest.headline if artifact.manifest else {}


def _manifest_difference(stored: Manifest, computed: Manifest) -> str:
    """Describe where two manifests of the same content differ, other than in the digest; empty if they do not."""
    for name in ("dataset_version", "num_rows"):
        if getattr(stored, name) != getattr(computed, name):
            return f"{name} in the manifest is {getattr(stored, name)}, computed {getattr(computed, name)}"
    for name in sorted(stored.headline.keys() | computed.headline.keys()):
        told, value = stored.headline.get(name), computed.headline.get(name)
        if not is_close(told, value):
            return f"{quoted(name)} in the manifest's headline is {told}, computed {value}"
    return ""


def _forget_learner() -> None:
    """Discard the learner's state, which differs from the stored checkpoint: the next update loads the latter."""
    from starpo.ragen.runs.placement import forget_learner

    forget_learner()
