"""Is a run what its record says? Every stage computed again from its stored inputs; what is stored checked in itself.

    run record -> visits -> Verifier -> findings

The verified store is only read. Every input is stored, so a stage need not wait for the one that made it: while the
learner works in this process, the stages up to its next work are looked at beside it, with episodes played by other
processes. Whatever is not the same there is looked at again in the order of the run, where what was computed may stand
in for what is lost.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from types import TracebackType

from flows.verifier import Verifier
from ragen.config.load import recorded_config
from ragen.store import Store
from ragen.verify.finding import Finding, Verdict
from ragen.verify.plan import Visit, plan_visits
from ragen.verify.scratch import Scratch

_LEARNER_STAGES = ("warm_start", "update")
"""Computed in this process; the others may be looked at beside them."""


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
    findings: list[Finding]
    num_iterations: int
    seconds: float

    @property
    def is_faultless(self) -> bool:
        """Is everything the same, or not repeatable for a reason?"""
        return not any(finding.verdict.is_fault for finding in self.findings)


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
    """Verify the stages that a run recorded.

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
    from ragen.policy.load import without_progress_bars

    started = time.perf_counter()
    record = store.runs.get(run)
    config = recorded_config(record.name, record.config, "Verify it with the release that made it")
    visits = plan_visits(record, store.runs.iterations(run), first, last, stages, share)
    findings: list[Finding] = []
    with (
        without_progress_bars(),
        Scratch(store) as scratch,
        Scratch(store) as aside,
        _Ahead(Verifier(store, aside, config, with_warm_start, may_derive=False)) as ahead,
    ):
        verifier = Verifier(store, scratch, config, with_warm_start)
        for number, visit in enumerate(visits):
            if on_visit is not None:
                on_visit(number, len(visits), visit)
            if visit.stage in _LEARNER_STAGES:
                ahead.begin(takewhile(lambda visit: visit.stage not in _LEARNER_STAGES, visits[number + 1 :]))
                findings += verifier.verify(visit)
            else:
                findings += ahead.found(visit) or verifier.verify(visit)
    return Verification(run, findings, len({visit.iteration for visit in visits}), time.perf_counter() - started)


class _Ahead:
    """Looks at stages in a thread of its own. A context manager: leaving it stops what is in play."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._thread = ThreadPoolExecutor(1, "verify-ahead")
        self._begun: deque[tuple[Visit, Future[list[Finding]]]] = deque()
        self._is_of_use = True

    def __enter__(self) -> "_Ahead":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            from tasks.warm_processes import stop_playing

            stop_playing()
        self._thread.shutdown(cancel_futures=True)

    def begin(self, visits: Iterable[Visit]) -> None:
        """Look at these stages from now on; at none, once something was found that is not the same."""
        if self._is_of_use:
            self._begun.extend((visit, self._thread.submit(self._verify, visit)) for visit in visits)

    def found(self, visit: Visit) -> list[Finding]:
        """What was found about the stage, if everything is the same; else nothing: it is to be looked at in order."""
        if not self._begun or self._begun[0][0] is not visit:
            return []
        findings = self._begun.popleft()[1].result()
        if all(finding.verdict is Verdict.SAME for finding in findings):
            return findings
        self._is_of_use = False
        return []

    def _verify(self, visit: Visit) -> list[Finding]:
        from tasks.warm_processes import playing_apart

        with playing_apart():
            return self._verifier.verify(visit)
