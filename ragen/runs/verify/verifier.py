"""Verification stage by stage: recompute it, compare with the stored artifacts, and check these for consistency.

visit -> inputs linked into a scratch store -> task -> outputs compared with the stored ones -> findings
"""

from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, NotAskedError, first_line, named_line
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.visible import quoted
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.differences import folder_difference, is_close, is_rounding, table_difference
from starpo.ragen.runs.verify.origin import different_origin
from starpo.ragen.runs.verify.recomputation import ARITHMETIC, NotComputedError, Recomputation
from starpo.ragen.runs.verify.scratch import Scratch, Stored
from starpo.ragen.runs.verify.stored_checks import StoredChecks
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict, summarised
from starpo.ragen.runs.work import Keys
from starpo.ragen.store import Store
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import Manifest


class Verifier:
    """Verifies the stages of a run, one after the other.

    Args:
        store: Store of the run; only read.
        scratch: Temporary store in front of it.
        config: Settings of the run.
        placement: Where stages are recomputed: here, as actors on other machines do not see the scratch store.
    """

    def __init__(self, store: Store, scratch: Scratch, config: StarPOConfig, placement: ModelPlacement) -> None:
        self.scratch = scratch
        self._store = store
        self._staleness = config.rollout.staleness
        self._learner = placement.learner
        self._recomputation = Recomputation(store, scratch, config, placement)
        self._checks = StoredChecks(self._recomputation)
        self._passed: deque[str] = deque()

    def verify(self, visit: Visit) -> list[CheckResult]:
        """Verify one stage: first compare its artifacts with recomputed ones, then check their contents."""
        computed, verdict, reason = self._computed(visit)
        stored = {kind: self.scratch.read(kind, key) for kind, key in visit.outputs.items()}
        self._recomputation.sound.update((kind, key) for kind, key in visit.outputs.items() if not stored[kind].fault)
        found = list(self._results(visit, stored, computed, verdict, reason))
        self._tidy(visit, stored, computed)
        for check, kind, differences in self._checks.of(visit, stored):
            try:
                detail = summarised(differences)
                verdict = Verdict.DIFFERENT if detail else Verdict.SAME
            except NotComputedError as error:
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

        try:
            with without_progress_bars():
                return self._recomputation.compute(visit), Verdict.SAME, ""
        except NotComputedError as error:
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
            if len(self._passed) > self._staleness:  # a rollout may use a checkpoint that much older
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

    def _compare(self, visit: Visit, kind: str, key: str, stored: Stored) -> tuple[Verdict, str]:
        """Compare an artifact with the recomputed one, which is stored under the key of this release."""
        assert stored.manifest is not None
        computed = self.scratch.store.manifest(kind, key)
        is_arithmetic = visit.stage in ARITHMETIC
        if stored.manifest.content_digest == computed.content_digest:
            difference = _manifest_difference(stored.manifest, computed)
            return (Verdict.DIFFERENT, difference) if difference else (Verdict.SAME, "")
        if visit.stage == "update":  # the next one loads the stored checkpoint, not the learner's state
            self._learner.close()
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
            folders = self._store.local_folder(kind, stored.manifest.key), self.scratch.store.local_folder(kind, key)
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
