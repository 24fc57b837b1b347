"""The scheduled audit: which runs it takes, and what it writes."""

from pathlib import Path

import pyarrow as pa

from starpo.flows.audit import due_runs, findings_markdown
from starpo.flows.serve import deployments
from starpo.ragen.evidence.audit.finding import Finding
from starpo.ragen.store import Store


def run(store: Store, name: str, status: str) -> None:
    store.runs.create(name, flow="starpo", preset=None, config={})
    store.runs.set_state(name, status)  # type: ignore[arg-type]


def test_running_runs_are_due_or_else_the_newest(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert due_runs(store) == []
    run(store, "old", "completed")
    run(store, "new", "failed")
    assert due_runs(store) == ["new"]
    run(store, "going", "running")
    run(store, "also-going", "running")
    assert set(due_runs(store)) == {"going", "also-going"}


def test_serious_findings_come_first_and_text_is_escaped() -> None:
    def finding(severity: str, text: str) -> Finding:
        table = pa.table({"run": ["r"], "iteration": [0], "said": [text]})
        return Finding(f"Title {severity}", severity, f"found {text}", "how to read it", table, True)  # type: ignore[arg-type]

    evil = "<script>|`x`\n# [a](b)\x1b"
    markdown = findings_markdown("r", {"a": finding("note", "n"), "b": finding("fault", evil)}, "store")
    assert markdown.index("Title fault") < markdown.index("Title note")
    assert "<script>" not in markdown
    assert "\x1b" not in markdown
    assert "\n# [" not in markdown
    for line in markdown.splitlines():
        if line.startswith(("| 0", "| r ")):
            assert line.replace("\\|", "").count("|") == 4


def test_it_is_a_scheduled_deployment() -> None:
    (deployment,) = [made for made in deployments() if made.flow_name == "audit"]
    assert deployment.name == "hourly"
    (schedule,) = deployment.schedules or []
    assert (schedule.schedule.cron, schedule.active) == ("7 * * * *", True)  # type: ignore[union-attr]
    assert deployment.concurrency_limit == 1


def test_work_pools_get_the_same_schedule() -> None:
    import yaml

    described = yaml.safe_load((Path(__file__).parents[2] / "prefect.yaml").read_text())["deployments"]
    (audit,) = [one for one in described if one["entrypoint"] == "starpo.flows.audit.audit"]
    (made,) = [made for made in deployments() if made.flow_name == "audit"]
    assert audit["name"] == made.name
    assert [schedule["cron"] for schedule in audit["schedules"]] == ["7 * * * *"]
