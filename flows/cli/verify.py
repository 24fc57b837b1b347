"""`ragen verify`."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.common import JsonOption, RunArgument, StoreOption, app, open_store

if TYPE_CHECKING:
    from flows.verify import Verification
    from ragen.verify.finding import Finding

_MAX_SHOWN = 20


@app.command()
def verify(
    run: RunArgument,
    first: Annotated[int | None, typer.Option("--from", help="First iteration. Default: the run's first.")] = None,
    last: Annotated[int | None, typer.Option("--to", help="Last iteration. Default: the run's last.")] = None,
    stage: Annotated[list[str] | None, typer.Option(help="Only this stage; may be repeated.")] = None,
    sample: Annotated[str, typer.Option(help="Share of the iterations, evenly spread, such as 10%.")] = "100%",
    warm_start: Annotated[bool, typer.Option("--warm-start", help="Do a long warm start again too.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute a run's stages again and compare; execute its actions, decode its tokens. Exit code 1: a difference."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    opened = open_store(store)
    share = _share(sample)
    opened.runs.get(run)  # an unknown name is told at once, before anything heavy is imported
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("loading", total=None)
        from flows.verify import verify_run

        verification = verify_run(
            opened,
            run,
            first=first,
            last=last,
            stages=stage or (),
            share=share,
            with_warm_start=warm_start,
            on_visit=lambda done, total, visit: progress.update(
                bar, completed=done, total=total, description=f"iteration {visit.iteration} {visit.name}"
            ),
        )
    if as_json:
        _print_json(verification)
    else:
        _print_table(verification)
    raise typer.Exit(0 if verification.is_faultless else 1)


def _share(text: str) -> float:
    from ragen.errors import ConfigError

    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"--sample {text} is no share of the iterations; expected more than 0% and at most 100%")
    return share


def _print_json(verification: "Verification") -> None:
    import json
    from dataclasses import asdict

    facts = asdict(verification) | {"is_faultless": verification.is_faultless}
    typer.echo(json.dumps(facts, indent=2))


def _print_table(verification: "Verification") -> None:
    from collections import Counter

    from rich.console import Console
    from rich.table import Table

    from ragen.verify.finding import Verdict

    console = Console()
    title = f"{verification.run}: {verification.num_iterations} iterations in {verification.seconds:.1f} s"
    table = Table("stage", "check", *(Verdict), title=title, title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    counts = Counter((f.stage, f.check, f.verdict) for f in verification.findings)
    previous = ""
    for stage, check in dict.fromkeys((f.stage, f.check) for f in verification.findings):
        numbers = [str(counts[stage, check, verdict] or "") for verdict in Verdict]
        table.add_row(stage if stage != previous else "", check, *numbers)
        previous = stage
    console.print(table)
    for line in _notes(verification.findings):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print("verified" if verification.is_faultless else "NOT verified", highlight=False)


def _notes(findings: "list[Finding]") -> list[str]:
    """Every fault on its own line, as far as they fit; reasons for what is not repeatable once each."""
    faults = [f for f in findings if f.verdict.is_fault]
    lines = [f"{f.verdict}: iteration {f.iteration}, {f.stage}, {f.check} ({f.artifact}): {f.detail}" for f in faults]
    if len(lines) > _MAX_SHOWN:
        lines = [*lines[:_MAX_SHOWN], f"and {len(faults) - _MAX_SHOWN} more; --json shows all"]
    reasons: dict[tuple[str, str], int] = {}
    for finding in findings:
        if finding.detail and not finding.verdict.is_fault:
            reasons[finding.stage, finding.detail] = reasons.get((finding.stage, finding.detail), 0) + 1
    return lines + [f"not repeatable: {stage} ({count}): {detail}" for (stage, detail), count in reasons.items()]
