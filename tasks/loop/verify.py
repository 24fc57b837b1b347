"""Verification of a run against its record: stages are recomputed, and stored artifacts are checked for consistency.

    run record -> seals, walk -> visits -> Verifier -> findings

The verified store is only read. Every stage is recomputed from its stored inputs, in the order of the run, so that
recomputed artifacts can replace lost ones.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from starpo.ragen.config.load import recorded_config
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.verify.chosen import Visit, check_stages, chosen_iterations
from starpo.ragen.runs.verify.scratch import Scratch
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict
from starpo.ragen.runs.verify.verifier import Verifier
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RECORD_ADVICE
from starpo.tasks.loop.record_walk import walk_record

Outcome = Literal["verified", "faults", "not shown"]


@dataclass(frozen=True)
class Verification:
    """Result of verifying a run.

    Attributes:
        run: The run's name.
        findings: Findings, in the order of the stages.
        iterations: Iterations verified.
        seconds: Duration of the verification.
    """

    run: str
    findings: list[CheckResult]
    iterations: list[int]
    seconds: float

    @property
    def num_iterations(self) -> int:
        """Number of iterations verified."""
        return len(self.iterations)

    def count(self, verdict: Verdict) -> int:
        """Count the findings with this verdict."""
        return sum(finding.verdict is verdict for finding in self.findings)

    @property
    def is_faultless(self) -> bool:
        """Whether nothing is different or damaged; some checks may still be inconclusive, see `outcome`."""
        return not any(finding.verdict.is_fault for finding in self.findings)

    @property
    def outcome(self) -> Outcome:
        """Overall outcome."""
        if not self.is_faultless:
            return "faults"
        return "not shown" if self.count(Verdict.NOT_SHOWN) else "verified"

    @property
    def exit_code(self) -> int:
        """0: everything checked is the same. 1: something differs or is damaged. 3: no fault, but not all is shown."""
        return {"verified": 0, "faults": 1, "not shown": 3}[self.outcome]


def verify_run(
    store: Store,
    run: str,
    *,
    first: int | None = None,
    last: int | None = None,
    stages: Sequence[str] = (),
    share: float = 1.0,
    on_visit: Callable[[int, int, Visit], None] | None = None,
) -> Verification:
    """Verify the stages that a run recorded, and the record itself, which is always checked as a whole.

    Args:
        store: Where the run is stored; nothing is written to it.
        run: The run's name.
        first: First iteration. None for the run's first.
        last: Last iteration, inclusive. None for the run's last.
        stages: Stages to verify. Empty for all.
        share: Share of the iterations to verify, evenly spread.
        on_visit: Called before each stage, in the order of the run, with the number of stages done, their total and the
            stage.

    Raises:
        StoreError: If there is no such run; the message suggests similar names.
        ConfigError: If a stage is not recorded, the range is not in the run, or its settings are not this release's.
    """
    from starpo.ragen.agents.policy.save import without_progress_bars

    started = time.perf_counter()
    record = store.runs.get(run)
    config = recorded_config(record.name, record.config, "Verify it with the release that made it")
    recorded = store.runs.iterations(run)
    chosen = chosen_iterations(run, list(recorded), first, last, share)
    check_stages(run, stages, (name for names in recorded.values() for name in names))
    walk = walk_record(store, record, config, recorded)
    visits = [v for v in walk.visits if v.iteration in chosen and (not stages or v.stage in stages)]
    findings = [_of_seals(store, run), *(walk.findings or [CheckResult(0, "record", "place", Verdict.SAME)])]
    with without_progress_bars(), Scratch(store) as scratch, ModelPlacement(is_here=True) as placement:
        verifier = Verifier(store, scratch, config, placement)
        for number, visit in enumerate(visits):
            if on_visit is not None:
                on_visit(number, len(visits), visit)
            findings += verifier.verify(visit)
    iterations = sorted({visit.iteration for visit in visits})
    return Verification(run, findings, iterations, time.perf_counter() - started)


def _of_seals(store: Store, run: str) -> CheckResult:
    """Check the chain of seals over the run's records."""
    seals = store.runs.seals(run)
    for path, what in seals.broken.items():
        more = f" (and {len(seals.broken) - 1} more)" if len(seals.broken) > 1 else ""
        detail = f"runs/{run}/{path}: {what}{more}. {RECORD_ADVICE}"
        return CheckResult(0, "record", "seals", Verdict.DIFFERENT, detail, f"runs/{run}/{path}")
    for path, why in seals.absent.items():
        more = f" (and {len(seals.absent) - 1} more)" if len(seals.absent) > 1 else ""
        detail = f"nothing seals runs/{run}/{path}: {why}{more}"
        return CheckResult(0, "record", "seals", Verdict.NOT_SHOWN, detail, f"runs/{run}/{path}")
    return CheckResult(0, "record", "seals", Verdict.SAME, artifact=f"runs/{run}/run.json")
