"""The scheduled audit: the runs that it audits, and its schedule."""

from pathlib import Path

from starpo.flows.audit import due_runs
from starpo.flows.deployments import deployments
from starpo.ragen.store import Store


def run(store: Store, name: str, status: str) -> None:
    store.runs.create(name, flow="starpo", preset=None, config={})
    store.runs.set_state(name, status)  # type: ignore[arg-type]


def test_active_runs_due_else_newest(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert due_runs(store) == []
    run(store, "old", "completed")
    run(store, "new", "failed")
    assert due_runs(store) == ["new"]
    run(store, "going", "running")
    run(store, "also-going", "running")
    assert set(due_runs(store)) == {"going", "also-going"}


def test_a_damaged_run_hides_no_other(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for name in ("damaged", "new"):
        run(store, name, "completed")
    record, state = (tmp_path / "runs" / "damaged" / name for name in ("run.json", "state.json"))
    whole = record.read_text()
    record.write_text("{")
    assert due_runs(store) == ["new"]
    record.write_text(whole)
    state.write_text("{")
    assert due_runs(store) == ["damaged"]  # it may still be running
    store.runs.set_state("new", "running")
    assert due_runs(store) == ["damaged", "new"]


def test_audit_is_a_scheduled_deployment() -> None:
    (deployed,) = [made for made in deployments() if made.flow.name == "audit"]
    made = deployed.to_runner()
    assert made.name == "hourly"
    (schedule,) = made.schedules or []
    assert (schedule.schedule.cron, schedule.active) == ("7 * * * *", True)  # type: ignore[union-attr]
    assert made.concurrency_limit == 1
