"""Scheduled audits of runs, so that problems are seen while a run still trains.

running runs (or the newest) -> named audits -> Prefect artifacts per run; a fault makes the flow run fail
"""

from contextlib import suppress

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed

from starpo.flows.markdown import Verbatim, artifact_key, code, seen, table, text
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import ArtifactDamagedError, StarPOError
from starpo.ragen.core.visible import visible
from starpo.ragen.evidence.audit.audits import chosen_audits, run_audits
from starpo.ragen.evidence.audit.finding import Finding, serious_first, shown_rows, verdict
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Store

MAX_ROWS = 8
"""Maximum number of rows per table in an artifact."""


@flow(name="audit", validate_parameters=True)
def audit(run: str | None = None, names: list[str] | None = None, store: str | None = None) -> State:
    """Run the named audits on runs, and publish the findings as Prefect artifacts.

    Args:
        run: Name of the run. None for all running ones, or the newest if none is running.
        names: Names of audits. None for all.
        store: Store URL. None for that of the serving process (RAGEN_STORE).

    Returns:
        Completed; or Failed if the stored data of a run contradict themselves or cannot be read. One run's failure does
        not prevent the audits of the others.
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
        return Failed(message=visible("; ".join(faults)))
    return Completed(message=f"no fault in {', '.join(audited)}" if audited else "there is no run to audit")


def due_runs(store: Store) -> list[str]:
    """Return the names of the running runs, or else of the newest one; empty for an empty store.

    A run whose state cannot be read counts as running. A run whose record cannot be read is never the newest, as its
    age is unknown.
    """
    names = store.runs.names()
    if running := [name for name in names if _may_be_running(store, name)]:
        return running
    runs = []
    for name in names:
        with suppress(ArtifactDamagedError):  # `ragen runs` lists it
            runs.append(store.runs.get(name))
    return [max(runs, key=lambda run: (run.created, run.name)).name] if runs else []


def _may_be_running(store: Store, run: str) -> bool:
    try:
        return store.runs.is_running(run)
    except ArtifactDamagedError:
        return True


def findings_markdown(run: str, findings: dict[str, Finding], store_url: str) -> str:
    """Format findings with their rows as Markdown, the most severe first."""
    order = serious_first(findings)
    lines = [f"# Audit of {text(run)}", "", text(verdict(findings)), "", f"in {code(store_url)}", ""]
    found = [(name, finding.severity, Verbatim(text(finding.summary))) for name, finding in order]
    lines += table(("audit", "", "found"), found)
    for _, finding in order:
        lines += ["", f"## {text(finding.title)}", "", text(finding.meaning), ""]
        rows, names = shown_rows(finding, MAX_ROWS), finding.table.schema.names
        if rows:
            header = [name.replace("_", " ") for name in names]
            lines += table(header, [[_cell(row[name]) for name in names] for row in rows])
    audit_, sql = code(f"ragen audit {run}"), code(f'ragen sql {run} "..."')
    lines += ["", f"{audit_} prints this with all rows; {sql} answers other questions."]
    return "\n".join(lines)


def _publish(run: str, findings: dict[str, Finding], store: Store) -> None:
    key = artifact_key(f"audit-{run}")
    create_markdown_artifact(findings_markdown(run, findings, store.url), key=key, description=f"audit of {run}")
    rows = [{"audit": name, "severity": f.severity, "found": f.summary} for name, f in findings.items()]
    create_table_artifact(seen(rows), key=f"{key}-table", description=f"audit of {run}")


def _cell(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value
