"""`starpo verify` of two iterations of the run, in a process of its own."""

import sys
from collections import Counter

import starpo
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.tasks.loop.verify import verify_run
from tests.benchmarks.gpu.report import Report
from tests.benchmarks.gpu.run import NAME
from tests.benchmarks.gpu.setup import Setup


def measure(report: Report, setup: Setup) -> None:
    """Verify the first two iterations; report the verdicts, and why something is not shown."""
    run = starpo.open_run(NAME, setup.out / "store")
    verification = verify_run(run.store, run.name, first=0, last=1)
    for verdict in Verdict:
        report.add(f"checks: {verdict}", verification.count(verdict))
    details = Counter(f"{f.verdict}: {f.stage}: {f.detail}" for f in verification.findings if f.detail)
    for detail, number in details.most_common(5):
        report.add(f"{number} times", detail)
    report.add("outcome", verification.outcome)
    report.add("seconds", round(verification.seconds, 1), "s")
    if not verification.is_faultless:
        sys.exit(f"verification found faults in run {run.name}")
