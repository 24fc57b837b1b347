"""Verification stage by stage: recompute it, compare with the stored artifacts, and check these for consistency.

visit -> recompute -> compare with what is stored; planned_checks -> run_check; -> results
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import NotAskedError, first_line, named_line
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.comparison import compare
from starpo.ragen.runs.verify.inputs import VerifiedInputs
from starpo.ragen.runs.verify.recomputation import recompute
from starpo.ragen.runs.verify.scratch import Scratch, Stored
from starpo.ragen.runs.verify.stored_checks import StoredStage, planned_checks, run_check
from starpo.ragen.runs.verify.verdict import CheckResult, NotComputedError, Verdict
from starpo.ragen.runs.work import Keys
from starpo.ragen.store import Store


@dataclass(frozen=True)
class _Recomputed:
    """Outputs of a recomputed stage; if there are none, the verdict on all of its artifacts, and the reason."""

    keys: Keys = field(default_factory=dict)
    verdict: Verdict = Verdict.SAME
    reason: str = ""


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
        self._config = config
        self._inputs = VerifiedInputs(store, scratch, placement)
        self._passed: deque[str] = deque()

    def verify(self, visit: Visit) -> list[CheckResult]:
        """Verify one stage: first compare its artifacts with recomputed ones, then check their contents."""
        recomputed = _recomputed(visit, self._inputs, self._config)
        stored = {kind: self.scratch.read(kind, key) for kind, key in visit.outputs.items()}
        self._inputs.sound.update((kind, key) for kind, key in visit.outputs.items() if not stored[kind].fault)
        results = [self._result(visit, kind, stored[kind], recomputed) for kind in visit.outputs]
        self._tidy(visit, stored, recomputed.keys)
        stage = StoredStage(visit, stored, self._config, self._inputs)
        return results + [run_check(check, stage) for check in planned_checks(visit, stored, self._config)]

    def _result(self, visit: Visit, kind: str, stored: Stored, recomputed: _Recomputed) -> CheckResult:
        """Compare an artifact of the stage with the recomputed one."""
        key = visit.outputs[kind]
        if stored.fault:
            remedy = self._remedy(kind, key, stored, recomputed.keys)
            verdict, detail = Verdict.DAMAGED, stored.fault + remedy
        elif recomputed.reason:
            verdict, detail = recomputed.verdict, recomputed.reason
        else:
            verdict, detail = self._compared(visit, kind, stored, recomputed.keys)
        return CheckResult(visit.iteration, visit.name, kind, verdict, detail, artifact=f"{kind}/{key}")

    def _compared(self, visit: Visit, kind: str, stored: Stored, keys: Keys) -> tuple[Verdict, str]:
        assert stored.manifest is not None
        computed = self.scratch.store.manifest(kind, keys[kind])
        if visit.stage == "update" and stored.manifest.content_digest != computed.content_digest:
            self._inputs.placement.learner.close()  # the next update loads the checkpoint as it is stored
        return compare(visit, stored, computed, self._store, self.scratch.store)

    def _remedy(self, kind: str, key: str, stored: Stored, keys: Keys) -> str:
        """Keep the recomputed artifact as a stand-in for a damaged one; return a text that says so."""
        if keys.get(kind) != key:
            return ""
        digest = self.scratch.store.manifest(kind, key).content_digest
        if stored.manifest is not None and stored.manifest.content_digest != digest:
            return "; recomputed from its inputs, it differs from its manifest"
        self.scratch.keep_as_stand_in(kind, key)
        return "; its inputs reproduce it: delete what is left of it, and run the flow"

    def _tidy(self, visit: Visit, stored: Mapping[str, Stored], keys: Keys) -> None:
        """Remove what was recomputed, except stand-ins for lost artifacts that are still needed."""
        for kind, key in keys.items():
            if kind not in stored or (stored[kind].is_dropped and visit.outputs[kind] == key):
                self.scratch.keep_as_stand_in(kind, key)
            self.scratch.discard(kind, key)
        passed = visit.inputs.get("checkpoint")
        if visit.stage == "update" and passed is not None and passed != visit.inputs.get("reference"):
            self._passed.append(passed)
            if len(self._passed) > self._config.rollout.staleness:  # a rollout may use a checkpoint that much older
                self.scratch.release("checkpoint", self._passed.popleft())


def _recomputed(visit: Visit, inputs: VerifiedInputs, config: StarPOConfig) -> _Recomputed:
    """Recompute a stage."""
    from starpo.ragen.agents.policy.save import without_progress_bars

    try:
        with without_progress_bars():
            return _Recomputed(recompute(visit, inputs, config))
    except NotComputedError as error:
        return _Recomputed(verdict=error.verdict, reason=str(error))
    except NotAskedError as error:
        return _Recomputed(verdict=Verdict.NOT_SHOWN, reason=first_line(error))
    except FOREIGN as error:  # any error that damaged or forged data cause in a stage is a finding
        verdict = Verdict.NOT_SHOWN if visit.excuse else Verdict.DIFFERENT
        return _Recomputed(verdict=verdict, reason=f"recomputing it fails: {named_line(error)}")
