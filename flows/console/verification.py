"""The outcome of a verification as a table of stages, every difference, and a sentence; or as JSON."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from starpo.flows.console.documents.recomputing import VerifiedRun
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.core.counts import counted
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict

if TYPE_CHECKING:
    from starpo.tasks.loop.verify import Verification

_MAX_SHOWN = 20


def print_verification(verification: "Verification", as_json: bool, *, is_sample: bool = False) -> None:
    """Print a verification.

    Args:
        verification: The verification.
        as_json: Print JSON.
        is_sample: Whether its iterations are a sample, which is then listed.
    """
    if as_json:
        print_json(VerifiedRun.model_validate(verification, from_attributes=True))
        return
    console = Console()
    print_table(console, _rows(verification.findings), names=["stage", "check", *Verdict])
    for line in _notes(verification.findings):
        say(console, line)
    if is_sample:
        say(console, f"sampled iterations: {', '.join(map(str, verification.iterations))}")
    num_iterations, seconds = counted(verification.num_iterations, "iteration"), f"{verification.seconds:.0f} s"
    say(console, f"{verification.run}: {num_iterations} in {seconds}: {_outcome(verification)}")


def _outcome(verification: "Verification") -> str:
    """Summarise the outcome in words, as the exit code does."""
    num_faults = sum(finding.verdict.is_fault for finding in verification.findings)
    num_not_shown, total = verification.count(Verdict.NOT_SHOWN), len(verification.findings)
    match verification.outcome:
        case "faults":
            return f"NOT verified: faults: {num_faults}"
        case "not shown":
            return f"no difference found, but {num_not_shown} of {total} checks are NOT SHOWN"
    return "verified"


def _rows(findings: list[CheckResult]) -> list[dict[str, Any]]:
    """Return one row per stage and check with the number of findings of each verdict, None for zero."""
    counts = Counter((finding.stage, finding.check, finding.verdict) for finding in findings)
    return [
        {"stage": stage, "check": check, **{verdict: counts[stage, check, verdict] or None for verdict in Verdict}}
        for stage, check in dict.fromkeys((finding.stage, finding.check) for finding in findings)
    ]


def _notes(findings: list[CheckResult]) -> list[str]:
    """Return one line per fault, up to a limit, and one per distinct reason why something is not shown."""
    faults = [f for f in findings if f.verdict.is_fault]
    lines = [f"{f.verdict}: iteration {f.iteration}, {f.stage}, {f.check} ({f.artifact}): {f.detail}" for f in faults]
    if len(lines) > _MAX_SHOWN:
        lines = [*lines[:_MAX_SHOWN], f"and {len(faults) - _MAX_SHOWN} more; --json shows all"]
    reasons = Counter((f.stage, f.detail) for f in findings if f.verdict is Verdict.NOT_SHOWN)
    return lines + [f"{Verdict.NOT_SHOWN}: {stage} ({count}): {detail}" for (stage, detail), count in reasons.items()]
