"""What the commands `sql`, `audit` and `lineage` do: ask the library, and print what it says."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.text import Text

from starpo.flows.console.answers import (
    json_rows,
    print_json_rows,
    write_csv,
    write_parquet,
)
from starpo.flows.console.lineage import draw_lineage, lineage_json
from starpo.flows.console.table import cell, print_table
from starpo.flows.console.terminal import Console, print_json, write
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.registry import AUDITS
from starpo.ragen.evidence.audit.audits import about, chosen_audits, run_audits
from starpo.ragen.evidence.audit.finding import Finding
from starpo.ragen.evidence.audit.lineage import dot_text, lineage, mermaid_text, near
from starpo.ragen.evidence.audit.named import matching_runs
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.evidence.audit.views import DATASET_VIEWS, DERIVED_VIEWS, RECORD_VIEWS
from starpo.ragen.store import Store

_STYLES = {"fault": "bold red", "warning": "yellow", "note": "green"}
_SEVERITIES = tuple(_STYLES)
_LONG_TEXT = 24
_MAX_ROWS = 100
"""Rows of an answer that a terminal shows."""
_ERRORS = Console(stderr=True)


def answer(
    store: Store,
    runs: list[str],
    query: str,
    *,
    as_json: bool,
    csv: Path | None,
    parquet: Path | None,
    should_verify: bool,
) -> None:
    """Ask runs a question and print or write the answer.

    Raises:
        ConfigError: If more than one form of answer is asked for, or a file cannot be written.
        QueryError: If the question is malformed or would do more than read.
        StoreError: If a run does not exist, or what it stored cannot be read.
    """
    if sum((as_json, csv is not None, parquet is not None)) > 1:
        raise ConfigError("the answer has one form: give only one of --json, --csv FILE and --parquet FILE")
    with open_database(store, matching_runs(store, runs), should_verify=should_verify) as database:
        with _ERRORS.status("reading"):
            found = database.stream(query)
        if csv is not None:
            write(f"{write_csv(found, csv)} rows in {csv}")
        elif parquet is not None:
            write(f"{write_parquet(found, parquet)} rows in {parquet}")
        elif as_json:
            print_json_rows(found, sys.stdout)
        else:
            _print_answer(found, Console())


def audit_run(store: Store, run: str, names: list[str], *, rows: int, as_json: bool, should_verify: bool) -> bool:
    """Audit a run and print what was found: the verdict first, then faults, warnings, notes.

    Returns:
        Is there a fault?

    Raises:
        ConfigError: If an audit does not exist.
        StoreError: If the run does not exist, or what it stored cannot be read.
    """
    chosen = chosen_audits(names)
    found: dict[str, Finding] = {}
    console = Console()
    with open_database(store, [store.runs.get(run).name], should_verify=should_verify) as database:
        for name in chosen:
            with _ERRORS.status(f"{name}: {about(name)}"):
                ((_, finding),) = run_audits(database, [name])
            found[name] = finding
    if as_json:
        facts = [{"audit": name, **finding_json(finding)} for name, finding in found.items()]
        print_json(facts)
    else:
        console.print(verdict(found), style="bold")
        for name, finding in serious_first(found):
            _print_finding(name, finding, console, rows)
    return any(finding.severity == "fault" for finding in found.values())


def serious_first(found: Mapping[str, Finding]) -> list[tuple[str, Finding]]:
    """Findings by severity: faults, warnings, notes; among equals as they were asked for."""
    return sorted(found.items(), key=lambda item: _SEVERITIES.index(item[1].severity))


def verdict(found: Mapping[str, Finding]) -> str:
    """What the findings come to, in one line."""
    named = {severity: [name for name, f in found.items() if f.severity == severity] for severity in _SEVERITIES}
    faults, warnings = named["fault"], named["warning"]
    if faults:
        line = f"what is stored contradicts itself ({', '.join(faults)})"
    else:
        line = "what is stored does not contradict itself"
    return f"{line}; to look at: {', '.join(warnings)}" if warnings else line


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding in JSON's types, with all its rows."""
    return {
        "title": finding.title,
        "severity": finding.severity,
        "summary": finding.summary,
        "meaning": finding.meaning,
        "rows": list(json_rows(finding.table.to_batches())),
    }


def shown_rows(finding: Finding, limit: int) -> list[dict[str, Any]]:
    """The rows to show: the first, or, of a table over time, those of iterations evenly spread, the last included."""
    if not finding.is_over_time or finding.table.num_rows <= limit:
        return finding.table.slice(0, limit).to_pylist()
    rows = finding.table.to_pylist()
    times = list(dict.fromkeys((row["run"], row["iteration"]) for row in rows))
    num_shown = max(2, limit * len(times) // len(rows))
    shown = {times[round(place * (len(times) - 1) / (num_shown - 1))] for place in range(num_shown)}
    return [row for row in rows if (row["run"], row["iteration"]) in shown]


def print_audits(as_json: bool) -> None:
    """The named audits, and what each asks."""
    rows = [{"audit": name, "about": about(name)} for name in AUDITS]
    if as_json:
        print_json(rows)
        return
    print_table(Console(), rows)


def print_views(as_json: bool) -> None:
    """The views of `ragen sql`, their columns, types and meaning."""
    columns = {
        view: [{"column": field.name, "type": str(field.type), "meaning": _meaning(field)} for field in schema]
        for view, schema in {**DATASET_VIEWS, **RECORD_VIEWS}.items()
    }
    if as_json:
        of_data = [{"view": view, "columns": rows} for view, rows in columns.items()]
        derived = [{"view": view, "about": d.about, "from": list(d.sources)} for view, d in DERIVED_VIEWS.items()]
        print_json([*of_data, *derived])
        return
    console = Console()
    for view, rows in columns.items():
        console.print(f"\n{view}", style="bold")
        print_table(console, rows)
    for view, made in DERIVED_VIEWS.items():
        console.print(f"\n{view}", style="bold", end="")
        console.print(f": {made.about}, from {', '.join(made.sources)}; DESCRIBE {view} lists its columns")


def show_lineage(store: Store, artifact: str, depth: int, *, as_json: bool, as_dot: bool, as_mermaid: bool) -> bool:
    """Print where an artifact comes from and what came of it: as a tree, or in one of the other forms.

    Returns:
        Is a part of its chain gone?
    """
    with _ERRORS.status("reading manifests") as status:
        found = lineage(store, artifact, lambda done, total: status.update(f"reading manifests: {done} of {total}"))
    part = near(found, depth)
    if as_json:
        print_json(lineage_json(part))
    elif as_dot:
        write(dot_text(part))
    elif as_mermaid:
        write(mermaid_text(part))
    else:
        Console().print(draw_lineage(found, depth))
    for key in found.missing:
        _ERRORS.print("gone:", style="red", end=" ")
        _ERRORS.print(f"{key} is named as an input, and nothing of it is in {store.url}")
    for fault in found.unreadable:
        _ERRORS.print("unreadable elsewhere:", style="yellow", end=" ")
        _ERRORS.print(fault)
    return bool(found.missing)


def _print_answer(answer: pa.RecordBatchReader, console: Console) -> None:
    """The first rows of an answer, and whether there are more."""
    rows: list[dict[str, Any]] = []
    for batch in answer:
        rows += batch.slice(0, _MAX_ROWS + 1 - len(rows)).to_pylist()
        if len(rows) > _MAX_ROWS:
            break
    print_table(console, rows[:_MAX_ROWS], names=answer.schema.names)
    if len(rows) > _MAX_ROWS:
        console.print(f"the first {_MAX_ROWS} rows; --json, --csv FILE and --parquet FILE give all of them")


def _print_finding(name: str, finding: Finding, console: Console, limit: int) -> None:
    title = Text.assemble("\n", (finding.title, "bold"), f" ({name}) ", (finding.severity, _STYLES[finding.severity]))
    console.print(title)
    console.print(finding.summary)
    console.print(finding.meaning, style="dim")
    rows = shown_rows(finding, limit)
    long = [column for column in finding.table.schema.names if finding.is_over_time and _is_long(column, rows)]
    if rows:
        shown = [column for column in finding.table.schema.names if column != "run" and column not in long]
        print_table(console, rows, names=shown)
    for column in long:
        label = Text(f"{column.replace('_', ' ')} of iteration {rows[-1]['iteration']}: ", style="dim")
        console.print(label.append(cell(rows[-1][column]), style="not dim"))
    if len(rows) < finding.table.num_rows:
        console.print(f"{len(rows)} of {finding.table.num_rows} rows; --rows N and --json show more", style="dim")


def _is_long(column: str, rows: list[dict[str, Any]]) -> bool:
    """Is this text that would squeeze the other columns?"""
    return any(isinstance(row[column], str) and len(row[column]) > _LONG_TEXT for row in rows)


def _meaning(field: pa.Field) -> str:
    return (field.metadata or {}).get(b"meaning", b"").decode()
