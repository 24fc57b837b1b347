"""`starpo audit`: print the verdict, then faults, warnings and notes."""

from typing import Annotated, Any

import typer
from rich.text import Text

from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, judging, open_store
from starpo.flows.console.answers import json_rows
from starpo.flows.console.documents.analysis import AuditFinding, AuditName
from starpo.flows.console.listing import print_records
from starpo.flows.console.table import cell, print_table
from starpo.flows.console.terminal import Console, print_json
from starpo.ragen.core.registry import AUDITS
from starpo.ragen.evidence.audit.audits import about, chosen_audits, run_audits
from starpo.ragen.evidence.audit.finding import Finding, serious_first, shown_rows, verdict
from starpo.ragen.evidence.audit.stored import open_database

_STYLES = {"fault": "bold red", "warning": "yellow", "note": "green"}
_LONG_TEXT = 24


def _print_audits(context: typer.Context, wanted: bool) -> None:
    if wanted:
        print_audits(context.params["as_json"])
        raise typer.Exit


def audit(
    run: RunArgument,
    names: Annotated[list[str] | None, typer.Argument(help="Audits to run (--list shows them). Default: all.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each table to print.")] = 12,
    store: StoreOption = None,
    as_json: JsonOption = False,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file before reading it.")] = False,
    _list: Annotated[bool, typer.Option("--list", callback=_print_audits, help="List the audits.")] = False,
) -> None:
    """Audit a run: duplicates, rewards, reasoning ... Exit code 1: what is stored contradicts itself. 2: nothing was
    audited, for example because there is no such run.
    """
    findings: dict[str, Finding] = {}
    console = Console()
    with judging():
        chosen, opened = chosen_audits(names or []), open_store(store)
        audited = [opened.runs.get(run).name]
        with open_database(opened, audited, should_verify=verify, has_many_queries=True) as database:
            for name in chosen:
                with Console(stderr=True).status(f"{name}: {about(name)}"):
                    ((_, finding),) = run_audits(database, [name])
                findings[name] = finding
    if as_json:
        print_json([_document(name, finding) for name, finding in findings.items()])
    else:
        console.print(verdict(findings), style="bold")
        for name, finding in serious_first(findings):
            _print_finding(name, finding, console, rows)
    if any(finding.severity == "fault" for finding in findings.values()):
        raise typer.Exit(1)


def _document(name: str, finding: Finding) -> AuditFinding:
    return AuditFinding(
        audit=name,
        title=finding.title,
        severity=finding.severity,
        summary=finding.summary,
        meaning=finding.meaning,
        rows=list(json_rows(finding.table.to_batches())),
    )


def print_audits(as_json: bool) -> None:
    """Print the named audits and what each checks."""
    print_records([AuditName(audit=name, about=about(name)) for name in AUDITS], as_json, "audits")


def _print_finding(name: str, finding: Finding, console: Console, limit: int) -> None:
    title = Text.assemble("\n", (finding.title, "bold"), f" ({name}) ", (finding.severity, _STYLES[finding.severity]))
    console.print(title)
    console.print(finding.summary)
    console.print(finding.meaning, style="dim")
    rows = shown_rows(finding, limit)
    columns = [column for column in finding.table.schema.names if column != "run"]
    long = [column for column in columns if finding.is_over_time and _is_long(column, rows)]
    if rows:
        print_table(console, rows, names=[column for column in columns if column not in long])
    for column in long:
        last = next(row for row in reversed(rows) if row[column])
        label = Text(f"{column.replace('_', ' ')} of iteration {last['iteration']}: ", style="dim")
        console.print(label.append(cell(last[column]), style="not dim"))
    if len(rows) < finding.table.num_rows:
        console.print(f"{len(rows)} of {finding.table.num_rows} rows; --rows N and --json show more", style="dim")


def _is_long(column: str, rows: list[dict[str, Any]]) -> bool:
    """Whether the column has long text that would squeeze the others."""
    return any(isinstance(row[column], str) and len(row[column]) > _LONG_TEXT for row in rows)
