"""One stage after the other computed again, compared with what is stored, and what is stored checked in itself.

    visit -> inputs linked into a scratch store -> task -> outputs beside the stored ones -> findings

Tasks are called as plain functions, without Prefect, so that engine and learner stay loaded. A learner goes on from
what it holds where its last update gave the stored checkpoint, digest for digest; where it did not, the next update
begins from the stored one.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from flows.recompute import VERSIONS, environment_of, recompute
from ragen.config.starpo import StarPOConfig
from ragen.errors import ArtifactDamagedError, ArtifactMissingError, StoreError
from ragen.store import Store
from ragen.verify.actions import episode_differences, turn_differences
from ragen.verify.differences import folder_difference, table_difference
from ragen.verify.finding import Finding, Verdict, first_line, named_line, shown, summarised
from ragen.verify.origin import different_origin, other_work
from ragen.verify.plan import INPUTS, Visit
from ragen.verify.scratch import Scratch, Stored
from schemas.datasets import DATASETS
from schemas.manifest import Manifest
from tasks.stage import Keys

LONG_WARM_START_S = 30.0
"""A warm start that took longer is done again only on demand."""

_TORCH_STAGES = ("warm_start", "evaluate", "rollout", "update")


class _CannotRepeat(Exception):  # noqa: N818
    """A stage cannot be computed again; the message says why."""


@dataclass(frozen=True)
class Verifier:
    """Looks at one stage after the other.

    Attributes:
        store: Where the run is; only read.
        scratch: In front of it.
        config: The run's.
        with_warm_start: Do the warm start again even where it took long.
        may_derive: Make checkpoints that were dropped, with this process's learner.
    """

    store: Store
    scratch: Scratch
    config: StarPOConfig
    with_warm_start: bool
    may_derive: bool = True
    _passed: deque[str] = field(default_factory=deque)

    def verify(self, visit: Visit) -> list[Finding]:
        """All that is found about one stage: its results first, then what they hold."""
        computed, verdict, reason = self._computed(visit)
        stored = {kind: self.scratch.read(kind, key) for kind, key in visit.outputs.items()}
        found = list(self._results(visit, stored, computed, verdict, reason))
        self._tidy(visit, stored, computed)
        for check, kind, differences in self._inner_checks(visit, stored):
            try:
                detail = summarised(differences)
                verdict = Verdict.DIFFERENT if detail else Verdict.SAME
            except (ArtifactMissingError, ArtifactDamagedError) as error:
                verdict, detail = Verdict.NOT_REPEATABLE, f"it cannot be checked: {first_line(error)}"
            except Exception as error:  # whatever forged data make a check raise is a finding
                verdict, detail = Verdict.DIFFERENT, f"the check fails: {named_line(error)}"
            artifact = f"{kind}/{visit.outputs[kind]}"
            found.append(Finding(visit.iteration, visit.name, check, verdict, detail, artifact))
        return found

    def _computed(self, visit: Visit) -> tuple[Keys, Verdict, str]:
        """Compute the stage again: what it made, or the verdict on all that it should have made, and why."""
        from tasks.warm_processes import playing_here

        try:
            with playing_here():  # actors on other nodes do not see the scratch store
                return self._compute(visit), Verdict.SAME, ""
        except _CannotRepeat as error:
            return {}, Verdict.NOT_REPEATABLE, str(error)
        except Exception as error:  # whatever damaged or forged data make a stage raise is a finding
            return {}, Verdict.DIFFERENT, f"computing it again fails: {named_line(error)}"

    def _results(
        self, visit: Visit, stored: Mapping[str, Stored], computed: Keys, verdict: Verdict, reason: str
    ) -> Iterator[Finding]:
        """Compare all that the stage made."""
        for kind, key in visit.outputs.items():
            artifact = stored[kind]
            if artifact.fault:
                outcome = Verdict.DAMAGED, artifact.fault + self._remedy(kind, key, artifact, computed)
            elif reason:
                outcome = verdict, reason
            elif computed[kind] != key:
                assert artifact.manifest is not None
                outcome = other_work(artifact.manifest, self.scratch.store.manifest(kind, computed[kind]))
            else:
                outcome = self._compare(visit, kind, key, artifact)
            yield Finding(visit.iteration, visit.name, kind, *outcome, artifact=f"{kind}/{key}")

    def _tidy(self, visit: Visit, stored: Mapping[str, Stored], computed: Keys) -> None:
        """Forget what was computed, but for what stands in for something lost and is still needed."""
        for kind, key in computed.items():
            if kind not in stored or stored[kind].is_dropped:
                self.scratch.keep_as_stand_in(kind, key)
            self.scratch.discard(kind, key)
        passed = visit.inputs.get("checkpoint")
        if visit.stage == "update" and passed is not None and passed != visit.inputs.get("reference"):
            self._passed.append(passed)
            if len(self._passed) > self.config.rollout.staleness:  # a rollout ahead still needs the one before
                self.scratch.release("checkpoint", self._passed.popleft())

    def _remedy(self, kind: str, key: str, artifact: Stored, computed: Keys) -> str:
        """Put what was computed again in place of a damaged artifact, and say so."""
        if computed.get(kind) != key:
            return ""
        digest = self.scratch.store.manifest(kind, key).content_digest
        if artifact.manifest is not None and artifact.manifest.content_digest != digest:
            return "; its inputs give another content than its manifest names"
        self.scratch.keep_as_stand_in(kind, key)
        return "; its inputs give it again: delete what is left of it, and run the flow"

    def _compute(self, visit: Visit) -> Keys:
        """Do the stage's work in the scratch store.

        Raises:
            _CannotRepeat: If it cannot be done, or need not give the same.
        """
        manifests = (self.scratch.manifest(kind, key) for kind, key in visit.outputs.items())
        manifest = next((manifest for manifest in manifests if manifest is not None), None)
        self._check_repeatable(visit, manifest)
        inputs = {**(manifest.inputs if manifest else {}), **visit.inputs}
        for role in INPUTS[visit.stage]:
            if role == "reference" and self.config.update.kl_coefficient == 0:
                continue
            if role not in inputs:
                raise _CannotRepeat(f"nothing says which {role} it was made from")
            try:
                self._provide("checkpoint" if role == "reference" else role, inputs[role])
            except (ArtifactMissingError, ArtifactDamagedError) as error:
                raise _CannotRepeat(f"its input cannot be used: {first_line(error)}") from error
        if visit.stage == "evaluate":
            self._check_lineage(inputs["checkpoint"], manifest)
        for kind, key in visit.outputs.items():
            self.scratch.discard(kind, key)
        return recompute(visit, self.config, self.scratch.url, inputs, lineage=self.store.url)

    def _check_lineage(self, checkpoint: str, manifest: Manifest | None) -> None:
        """What a checkpoint was trained on divides its panel: it must be there as it was when that was played."""
        from ragen.evaluate.training_states import training_states

        try:
            unknown = training_states(self.store, checkpoint).num_unknown
        except StoreError as error:
            raise _CannotRepeat(f"what its checkpoint was trained on cannot be read: {first_line(error)}") from error
        name = "num_unknown_origins"
        stored = [value for path, value in (manifest.headline if manifest else {}).items() if path.endswith(name)]
        if unknown > (stored[0] if stored else 0.0):
            raise _CannotRepeat(f"{unknown} stages that its checkpoint was trained by are not in the store any more")

    def _provide(self, kind: str, key: str) -> None:
        """Have an input in the scratch store; a checkpoint that was dropped is derived, if it is not there yet."""
        if kind != "checkpoint" or self.scratch.has(kind, key) or self.store.dropped(kind, key) is None:
            self.scratch.provide(kind, key)
            return
        if not self.may_derive:
            raise ArtifactMissingError(f"{kind}/{key} was dropped")
        from ragen.checkpoints.derive import derive, restore
        from ragen.checkpoints.recipe import find_recipe
        from tasks.warm_processes import learner_for

        with derive(self.store, find_recipe(self.store, key), learner_for) as derivation:
            restore(self.scratch.store, derivation)
        self.scratch.keep_as_stand_in(kind, key)

    def _check_repeatable(self, visit: Visit, manifest: Manifest | None) -> None:
        if visit.stage not in INPUTS:
            raise _CannotRepeat("no stage of training: verify does not compute it again")
        if manifest is None:
            return
        made_by, version = manifest.stage.version, VERSIONS[visit.stage]
        if made_by != version:
            raise _CannotRepeat(
                f"it was made by version {made_by} of the stage, and this release has version {version}"
            )
        if not manifest.is_deterministic:
            raise _CannotRepeat("its manifest says that the same work need not give the same bits")
        seconds = manifest.provenance.get("seconds")
        is_long = isinstance(seconds, int | float) and seconds > LONG_WARM_START_S
        if visit.stage == "warm_start" and is_long and not self.with_warm_start:
            raise _CannotRepeat(f"left out, since it took {seconds:.0f} s; --warm-start includes it")

    def _compare(self, visit: Visit, kind: str, key: str, stored: Stored) -> tuple[Verdict, str]:
        """Compare an artifact with what was computed again under the same key."""
        assert stored.manifest is not None
        computed = self.scratch.store.manifest(kind, key)
        if stored.manifest.content_digest == computed.content_digest:
            difference = _headline_difference(stored.manifest, computed)
            return (Verdict.DIFFERENT, difference) if difference else (Verdict.SAME, "")
        if visit.stage == "update":
            _forget_learner()
        if stored.table is not None:
            again = self.scratch.store.read_table(kind, key)
            difference = table_difference(stored.table, again, DATASETS[kind].key)
        elif stored.is_dropped:
            difference = "its files were dropped, and what is computed again has another digest than its manifest names"
        else:
            difference = folder_difference(*(Path(s.local_folder(kind, key)) for s in (self.store, self.scratch.store)))
        if not computed.is_deterministic:
            return Verdict.NOT_REPEATABLE, f"on this machine the same work need not give the same bits; {difference}"
        origin = different_origin(stored.manifest, computed, visit.stage in _TORCH_STAGES)
        if origin:
            return Verdict.NOT_REPEATABLE, f"it was made with {origin}; {difference}"
        return Verdict.DIFFERENT, difference

    def _inner_checks(self, visit: Visit, stored: Mapping[str, Stored]) -> Iterator[tuple[str, str, Iterator[str]]]:
        """What is stored, against itself and the environment: no policy takes part, so this holds on every machine.

        Yields:
            Name of the check, kind of the artifact that it is about, differences.
        """
        sound = {kind: artifact for kind, artifact in stored.items() if not artifact.fault and not artifact.is_dropped}
        if visit.stage == "rollout" and "turns" in sound:
            turns = sound["turns"].table
            yield "actions", "turns", turn_differences(turns, self.config.environment, self.config.agent)
            yield "texts", "turns", self._text_differences(sound["turns"])
        if visit.stage == "evaluate" and "episodes" in sound:
            yield "actions", "episodes", self._episode_differences(visit, sound["episodes"])
        if visit.stage == "update" and "samples" in sound:
            yield "tokens", "samples", self._token_differences(sound["samples"])

    def _episode_differences(self, visit: Visit, episodes: Stored) -> Iterator[str]:
        yield from episode_differences(episodes.table, environment_of(visit, self.config))

    def _text_differences(self, turns: Stored) -> Iterator[str]:
        from ragen.agent.context import ContextBuilder
        from ragen.policy.load import load_tokenizer
        from ragen.verify.texts import text_differences

        assert turns.manifest is not None
        key = turns.manifest.inputs.get("checkpoint")
        if key is None:
            raise ArtifactMissingError("the trajectories were imported, and the tokenizer that made them was not")
        self._provide("checkpoint", key)
        tokenizer = load_tokenizer(self.scratch.store.local_folder("checkpoint", key))
        contexts = ContextBuilder(tokenizer, self.config.agent, self.config.rollout.max_response_tokens)
        yield from text_differences(turns.table, self.config.environment, tokenizer, contexts)

    def _token_differences(self, samples: Stored) -> Iterator[str]:
        from ragen.verify.tokens import token_differences

        assert samples.manifest is not None
        inputs = samples.manifest.inputs
        turns, rewards, selection = (self._input(kind, inputs[kind]) for kind in ("turns", "rewards", "selection"))
        yield from token_differences(turns, rewards, selection, samples.table)

    def _input(self, kind: str, key: str) -> pa.Table:
        self.scratch.provide(kind, key)
        return self.scratch.store.read_table(kind, key)


def _headline_difference(stored: Manifest, computed: Manifest) -> str:
    for name, value in stored.headline.items():
        if computed.headline.get(name) != value:
            return f"{shown(name)} in the manifest's headline is {value}, computed {computed.headline.get(name)}"
    return ""


def _forget_learner() -> None:
    """What the learner holds now is not what the store does: the next update loads that."""
    from tasks.warm_processes import learner_for

    learner_for.cache_clear()
