"""`starpo verify`: verify with a progress bar, print a table of stages and every difference."""

import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, judging, open_store
from starpo.flows.console.documents.recomputing import VerifiedRun
from starpo.flows.console.progress import COUNTED, progress_bar
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict

if TYPE_CHECKING:
    from starpo.tasks.loop.verify import Verification

_MAX_SHOWN = 20


def verify(
    run: RunArgument,
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="First iteration. Default: the run's first.")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last iteration. Default: the run's last.")] = None,
    stage: Annotated[list[str] | None, typer.Option(help="Only this stage; may be repeated.")] = None,
    sample: Annotated[str, typer.Option(help="Share of the iterations, evenly spread, such as 10%.")] = "100%",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute a run's stages and compare; re-execute its actions, decode its tokens.

    The store is only read. Exit code 0: everything matches. 1: something differs or is damaged. 2: nothing was
    verified, for example because there is no such run. 3: nothing differs, but some checks could not be made, for
    reasons that are printed.
    """
    with judging():
        opened, share = open_store(store), _share(sample)
        opened.runs.get(run)  # report an unknown name before any heavy import
        # Threads of torch that wait for each other sleep, and leave the cores to whoever works: the run that is still
        # training here, or its server. Spinning takes several times as long then; results do not depend on it.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        with progress_bar("loading", COUNTED) as show:
            from starpo.tasks.loop.verify import verify_run

            verification = verify_run(
                opened,
                run,
                first=first,
                last=last,
                stages=stage or [],
                share=share,
                on_visit=lambda done, total, visit: show(done, total, f"iteration {visit.iteration} {visit.name}"),
            )
    if as_json:
        print_json(VerifiedRun.model_validate(verification, from_attributes=True))
        raise typer.Exit(verification.exit_code)
    console = Console()
    print_table(console, _rows(verification.findings), names=["stage", "check", *Verdict])
    for line in _notes(verification.findings):
        say(console, line)
    if share < 1:
        say(console, f"sampled iterations: {', '.join(map(str, verification.iterations))}")
    seconds = f"{verification.seconds:.0f} s"
    say(console, f"{run}: {counted(verification.num_iterations, 'iteration')} in {seconds}: {_outcome(verification)}")
    raise typer.Exit(verification.exit_code)


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


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else 0.0
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(
            f"--sample {text} is not a share of the iterations; expected more than 0% and at most 100%, such as 10%"
        )
    return share


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
