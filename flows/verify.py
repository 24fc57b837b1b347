"""Is a run what its record says? Every stage computed again from its stored inputs; what is stored checked in itself.

    run record -> seals, walk -> visits -> Verifier -> findings

The verified store is only read. Every stage is computed from its stored inputs, in the order of the run, so that what
was computed may stand in for what is lost.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from starpo.flows.walk import walk_record
from starpo.ragen.config.load import recorded_config
from starpo.ragen.recompute.verify.chosen import Visit, check_stages, chosen_iterations
from starpo.ragen.recompute.verify.scratch import Scratch
from starpo.ragen.recompute.verify.verdict import CheckResult, Verdict
from starpo.ragen.recompute.verify.verifier import Verifier
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RECORD_ADVICE

Outcome = Literal["verified", "faults", "not shown"]


@dataclass(frozen=True)
class Verification:
    """What was found.

    Attributes:
        run: The run's name.
        findings: In the order of the work.
        num_iterations: Iterations looked at.
        seconds: It took.
    """

    run: str
    findings: list[CheckResult]
    num_iterations: int
    seconds: float

    def count(self, verdict: Verdict) -> int:
        """How many findings are of this verdict."""
        return sum(finding.verdict is verdict for finding in self.findings)

    @property
    def is_faultless(self) -> bool:
        """Is nothing different or damaged? There may be what is not shown all the same: see `outcome`."""
        return not any(finding.verdict.is_fault for finding in self.findings)

    @property
    def outcome(self) -> Outcome:
        """In a word."""
        if not self.is_faultless:
            return "faults"
        return "not shown" if self.count(Verdict.NOT_SHOWN) else "verified"

    @property
    def exit_code(self) -> int:
        """0: everything that was looked at is the same. 1: something is not. 3: nothing is, and not all is shown."""
        return {"verified": 0, "faults": 1, "not shown": 3}[self.outcome]


def verify_run(
    store: Store,
    run: str,
    *,
    first: int | None = None,
    last: int | None = None,
    stages: Sequence[str] = (),
    share: float = 1.0,
    with_warm_start: bool = False,
    on_visit: Callable[[int, int, Visit], None] | None = None,
) -> Verification:
    """Verify the stages that a run recorded, and the record itself: that always as a whole.

    Args:
        store: Where the run is; nothing is written to it.
        run: Its name.
        first: First iteration. None: the run's first.
        last: Last iteration, included. None: the run's last.
        stages: Only these. Empty: all.
        share: Share of the iterations to look at, evenly spread.
        with_warm_start: Do the warm start again even where it took long.
        on_visit: Called with each stage, in the order of the run, and with the number of stages done and of all.

    Raises:
        StoreError: If there is no such run; the message names those that are near.
        ConfigError: If a stage does not exist, the range is not in the run, or its settings are not this release's.
    """
    from starpo.ragen.agents.policy.load import without_progress_bars

    started = time.perf_counter()
    record = store.runs.get(run)
    config = recorded_config(record.name, record.config, "Verify it with the release that made it")
    check_stages(stages)
    recorded = store.runs.iterations(run)
    chosen = chosen_iterations(run, list(recorded), first, last, share)
    walk = walk_record(store, record, config, recorded)
    visits = [v for v in walk.visits if v.iteration in chosen and (not stages or v.stage in stages)]
    findings = [_of_seals(store, run), *(walk.findings or [CheckResult(0, "record", "place", Verdict.SAME)])]
    with without_progress_bars(), Scratch(store) as scratch:
        verifier = Verifier(store, scratch, config, with_warm_start)
        for number, visit in enumerate(visits):
            if on_visit is not None:
                on_visit(number, len(visits), visit)
            findings += verifier.verify(visit)
    return Verification(run, findings, len({visit.iteration for visit in visits}), time.perf_counter() - started)


def _of_seals(store: Store, run: str) -> CheckResult:
    """What the chain of the run's records shows."""
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
