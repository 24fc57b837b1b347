"""Scheduled audits of runs, so that problems are seen while a run still trains.

running runs (or the newest) -> named audits -> warnings in the log; a fault makes the flow run fail
"""

from contextlib import suppress

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import StarPOError, StoreError
from starpo.ragen.core.visible import visible
from starpo.ragen.evidence.audit.audits import chosen_audits, run_audits
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Store


@flow(name="audit", validate_parameters=True)
def audit(run: str | None = None, names: list[str] | None = None, store: str | None = None) -> State:
    """Run the named audits on runs, and log what they find.

    Args:
        run: Name of the run. None for all running ones, or the newest if none is running.
        names: Names of audits. None for all.
        store: Store URL. None for that of the serving process (STARPO_STORE).

    Returns:
        Completed; or Failed if the stored data of a run contradict themselves or cannot be read. One run's failure does
        not prevent the audits of the others.
    """
    opened, log = Store(store or Runtime.current().store), get_run_logger()
    chosen = chosen_audits(names or [])
    audited, faults = [opened.runs.get(run).name] if run else due_runs(opened), []
    for name in audited:
        try:
            with open_database(opened, [name], has_many_queries=True) as database:
                findings = dict(run_audits(database, chosen))
        except StarPOError as error:
            log.error("run %s cannot be audited: %s", name, error)
            faults.append(f"{name}: {str(error).partition(chr(10))[0]}")
            continue
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
        with suppress(StoreError):  # `starpo runs` lists it
            runs.append(store.runs.get(name))
    return [max(runs, key=lambda run: (run.created, run.name)).name] if runs else []


def _may_be_running(store: Store, run: str) -> bool:
    try:
        return store.runs.is_running(run)
    except StoreError:
        return True
