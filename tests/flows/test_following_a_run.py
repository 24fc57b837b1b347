"""Following a run in an ordinary terminal shows its position, its success and its time."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from threading import Timer

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from rich.console import Console
from rich.text import Text

from starpo.flows.console.follow import RunFailedError, follow_run
from starpo.flows.outcome import Outcome
from starpo.ragen.store import Store
from starpo.ragen.store.records import leases

FACTS = {
    "iteration": 52.0,
    "iterations": 60.0,
    "evaluation": 0.656,
    "success": 0.773,
    "reward_std": 1.96,
    "seconds_left": 139.0,
    "fraction": 0.32,
}


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path))
    store.runs.set_state("a-run", "running", "variance_filter", FACTS)
    return store


def followed(store, outcome, **of_console):
    console = Console(file=StringIO(), width=80, **of_console)
    follow_run(store, "a-run", console, lambda: outcome)
    return Text.from_ansi(console.file.getvalue()).plain


def test_eighty_columns_hold_everything(store):
    screen = followed(store, Outcome("completed", ""), force_terminal=True)
    for part in (
        "iteration 52/60 · variance_filter 32%",
        "0:00:00",
        "panel success 0.656 · training success 0.773 · reward std 1.96 · 2 min left",
    ):
        assert part in screen


def test_plain_line_without_terminal(store):
    text = followed(store, Outcome("completed", ""))
    assert text.count("\n") == 1
    assert text.startswith("iteration 52/60 panel success 0.656")


def test_old_success_shows_its_age_uncut(store):
    store.runs.set_state("a-run", "running", "rollout", {**FACTS, "evaluated_at": 50.0})
    assert "panel success 0.656 (after 50 updates) · training" in followed(store, Outcome("completed", ""))
    screen = followed(store, Outcome("completed", ""), force_terminal=True)
    assert "panel success 0.656 (after 50 updates) · training success 0.773 · reward std" in " ".join(screen.split())
    assert "2 min left" in screen
    store.runs.set_state("a-run", "running", "rollout", {**FACTS, "evaluated_at": 52.0})
    assert "panel success 0.656 · training" in followed(store, Outcome("completed", ""))


def test_updates_counted_without_empty_iterations(store):
    facts = {**FACTS, "iteration": 3.0, "updates": 1.0, "format_ok": 0.0, "evaluated_at": 2.0, "evaluated_after": 1.0}
    store.runs.set_state("a-run", "running", "rollout", facts, "since iteration 1, nothing is learned: a reason")
    first, second = followed(store, Outcome("completed", "")).splitlines()
    assert "panel success 0.656 (after 1 update)" in first
    assert "0% well-formed · 1 update · 2 min left" in first
    assert second == "warning: since iteration 1, nothing is learned: a reason"


def test_fine_tuning_steps_shown_without_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr("starpo.flows.console.follow.POLL_S", 0.0)
    monkeypatch.setattr("starpo.flows.console.follow.PLAIN_EVERY_S", 0.0)
    store = Store(str(tmp_path))
    steps = iter(range(12, 15))

    def ended() -> Outcome | None:
        if (step := next(steps, None)) is None:
            return Outcome("completed", "")
        facts = {"iteration": 0.0, "iterations": 1.0, "fraction": step / 200, "stage_seconds_left": 400.0}
        store.runs.set_state("a-run", "running", f"fine-tuning step {step} of 200", facts)
        return None

    console = Console(file=StringIO(), width=80)
    follow_run(store, "a-run", console, ended)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "before the first iteration"
    assert lines[1] == (
        "before the first iteration · fine-tuning step 13 of 200 6% · 0 s so far, about 7 min left of this stage"
    )


def test_waiting_for_run_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("starpo.flows.console.follow.POLL_S", 0.0)
    monkeypatch.setattr("starpo.flows.console.follow.PLAIN_EVERY_S", 0.0)
    answers = iter([None, Outcome("completed", "")])
    console = Console(file=StringIO(), width=80)
    follow_run(Store(str(tmp_path)), "a-run", console, lambda: next(answers))
    assert console.file.getvalue() == "waiting for the run to start · 0 s so far\n"


def test_a_run_that_failed_says_why(store):
    with pytest.raises(RunFailedError, match="run a-run ended as failed: the reason"):
        followed(store, Outcome("failed", "the reason"))


WORKER = """
import sys, time
from starpo.ragen.store import Store
runs = Store(sys.argv[1]).runs
with runs.hold("a-run"):
    runs.set_state("a-run", "running", "update", {"iteration": 3.0, "iterations": 6.0})
    print("at work", flush=True)
    sys.stdin.readline()
    runs.set_state("a-run", "completed", "completed")
"""


@contextmanager
def worker(store: Store) -> Iterator[subprocess.Popen[str]]:
    """Start a process that works on the run, and completes it when it receives a line."""
    command = [sys.executable, "-c", WORKER, store.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "at work\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def _no_server() -> Iterator[None]:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        yield


def follow(store: Store) -> str:
    console = Console(file=StringIO(), width=200)
    follow_run(store, "a-run", console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.ci
@pytest.mark.timeout(60)
@pytest.mark.usefixtures("_no_server")
def test_killed_run_is_interrupted(store):
    with worker(store) as process:
        process.kill()
        process.wait()
    heard = f"{store.runs.last_heard('a-run'):%Y-%m-%d %H:%M:%S} UTC"
    expected = (
        rf"run a-run ended as interrupted: its process \({process.pid} on this machine\) has ended; its last "
        rf"heartbeat was at {heard}.*the same `starpo train` continues it"
    )
    with pytest.raises(RunFailedError, match=expected):
        follow(store)


@pytest.mark.ci
@pytest.mark.timeout(60)
@pytest.mark.usefixtures("_no_server")
def test_starting_run_is_followed_to_end(tmp_path):
    """It has neither a state nor a lease yet."""
    store = Store(str(tmp_path))
    store.runs.create("a-run", flow="starpo", preset="smoke", config={})
    with worker_soon(store):
        assert "iteration 3/6" in follow(store)


@contextmanager
def worker_soon(store: Store) -> Iterator[None]:
    def work() -> None:
        with worker(store) as process:
            process.communicate("done\n")

    timer = Timer(1.0, work)
    timer.start()
    yield
    timer.join()


@pytest.mark.ci
@pytest.mark.timeout(60)
@pytest.mark.usefixtures("_no_server")
@pytest.mark.parametrize(("age_s", "is_believed"), [(90, True), (150, False)])
def test_remote_run_trusted_for_two_minutes(store, age_s, is_believed):
    heard = datetime.now(UTC) - timedelta(seconds=age_s)
    holder = leases.Holder(machine="another", process=7, started="then", heard=heard)
    lease = Path(store.url, "runs", "a-run", "leases", "000001.json")
    lease.parent.mkdir(parents=True)
    lease.write_text(holder.model_dump_json())
    if is_believed:
        Timer(1.5, lambda: store.runs.set_state("a-run", "completed", "completed")).start()
        follow(store)
        return
    with pytest.raises(RunFailedError, match=r"interrupted: its process \(on another machine\) has ended"):
        follow(store)


def test_rolled_back_run_followed_through_fork(tmp_path, monkeypatch):
    monkeypatch.setattr("starpo.flows.console.follow.POLL_S", 0.01)
    store = Store(str(tmp_path))
    settings = {"diagnostics": {"on_collapse": "roll_back", "remedies": [{}]}}
    for name in ("a-run", "a-run-rollback-4"):
        store.runs.create(name, flow="starpo", preset="smoke", config=settings)
    store.runs.set_state("a-run", "failed", "it collapsed")
    store.runs.set_state("a-run-rollback-4", "completed", "completed", FACTS)
    assert follow_run(store, "a-run", Console(file=StringIO())) == "a-run-rollback-4"


def test_failed_rollback_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("starpo.flows.console.follow.POLL_S", 0.01)
    store = Store(str(tmp_path))
    for remedies in ([], [{}]):
        name = f"run-{len(remedies)}"
        settings = {"diagnostics": {"on_collapse": "roll_back", "remedies": remedies}}
        store.runs.create(name, flow="starpo", preset="smoke", config=settings)
        store.runs.set_state(name, "failed", "it collapsed")
        with pytest.raises(RunFailedError, match=f"run {name} ended as failed: it collapsed"):
            follow_run(store, name, Console(file=StringIO()))
