"""Audits of runs on a schedule: what is wrong is seen while a run still goes on.

running runs (or the newest) -> named audits -> a Prefect artifact each; a fault makes the flow run fail
"""

import html

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed

from flows.console.audit import shown_rows
from ragen.audit.audits import chosen_audits, run_audits
from ragen.audit.finding import Finding
from ragen.audit.stored import open_database
from ragen.config.runtime import Runtime
from ragen.errors import StarPOError
from ragen.store import Store

MAX_ROWS = 8
"""Rows of each table in an artifact."""
_MAX_TEXT = 80


@flow(name="audit", validate_parameters=True)
def audit(run: str | None = None, names: list[str] | None = None, store: str | None = None) -> State:
    """Look runs through with the named audits, and write what was found as Prefect artifacts.

    Args:
        run: Name of the run. None: all that are running, or, where none is, the newest.
        names: Audits; None: all.
        store: Store URL. None: the one of the serving process (RAGEN_STORE).

    Returns:
        Completed; or Failed, if what a run has stored contradicts itself or cannot be read. One run's failure does not
        keep the others from being audited.
    """
    opened, log = Store(store or Runtime.current().store), get_run_logger()
    chosen = chosen_audits(names or [])
    audited, faults = [opened.runs.get(run).name] if run else due_runs(opened), []
    for name in audited:
        try:
            with open_database(opened, [name]) as database:
                findings = dict(run_audits(database, chosen))
        except StarPOError as error:
            log.error("run %s cannot be audited: %s", name, error)
            faults.append(f"{name}: {str(error).partition(chr(10))[0]}")
            continue
        _publish(name, findings, opened)
        for audit_name, finding in findings.items():
            if finding.severity != "note":
                log.warning("run %s, audit %s: %s: %s", name, audit_name, finding.severity, finding.summary)
            if finding.severity == "fault":
                faults.append(f"{name}, {audit_name}: {finding.summary}")
    if faults:
        return Failed(message="; ".join(faults))
    return Completed(message=f"no fault in {', '.join(audited)}" if audited else "there is no run to audit")


def due_runs(store: Store) -> list[str]:
    """Names of the runs that are going on, or else of the newest one; none in an empty store."""
    runs = [run.name for run in store.runs.list()]
    return [name for name in runs if store.runs.is_running(name)] or runs[:1]


def findings_markdown(run: str, findings: dict[str, Finding], store_url: str) -> str:
    """Findings as Markdown, the serious ones first and with their rows; all text from a run is escaped."""
    order = sorted(findings.items(), key=lambda item: ("fault", "warning", "note").index(item[1].severity))
    lines = [f"# Audit of {_plain(run)}", "", f"in `{store_url}`", "", "| audit | | found |", "| --- | --- | --- |"]
    lines += [f"| {name} | {finding.severity} | {_plain(finding.summary)} |" for name, finding in order]
    for _, finding in order:
        lines += ["", f"## {finding.title}", "", _plain(finding.meaning), ""]
        rows, names = shown_rows(finding, MAX_ROWS), finding.table.schema.names
        if rows:
            lines += [f"| {' | '.join(name.replace('_', ' ') for name in names)} |", "| --- " * len(names) + "|"]
            lines += [f"| {' | '.join(_cell(row[name]) for name in names)} |" for row in rows]
    lines += ["", f'`ragen audit {run}` prints this with all rows; `ragen sql {run} "..."` asks further.']
    return "\n".join(lines)


def _publish(run: str, findings: dict[str, Finding], store: Store) -> None:
    key = "audit-" + "".join(c if c.isalnum() and c.isascii() else "-" for c in run.lower())
    create_markdown_artifact(findings_markdown(run, findings, store.url), key=key, description=f"audit of {run}")
    rows = [{"audit": name, "severity": f.severity, "found": f.summary} for name, f in findings.items()]
    create_table_artifact(rows, key=f"{key}-table", description=f"audit of {run}")


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return _plain(text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…")


def _plain(text: str) -> str:
    """Text in which neither HTML nor Markdown finds anything of its own."""
    kept = "".join(c if c.isprintable() else " " for c in html.escape(text))
    return "".join(f"\\{c}" if c in "\\`*_[]|~" else c for c in kept)
