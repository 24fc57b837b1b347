"""Runs of an ablation in separate processes: the end of each is reported, and none stops the others."""

import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect.states import Completed, Failed, Running, State

from starpo.flows import ablation
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunStatus

PARENT = UUID(int=7)


class Process:
    """Process that has already ended."""

    def __init__(self, exit_code: int) -> None:
        self.sentinel, write_end = os.pipe()
        os.close(write_end)
        self.exitcode, self.was_terminated = exit_code, False

    def join(self) -> None:
        os.close(self.sentinel)

    def terminate(self) -> None:
        os.close(self.sentinel)
        self.was_terminated = True


class Prefect:
    """Prefect client with the sub-flows of one flow run, by their current names."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.crashed: dict[str, str | None] = {}
        self.error: Exception | None = None

    def __enter__(self) -> "Prefect":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def read_flow_runs(self, flow_run_filter: Any) -> list[SimpleNamespace]:
        if self.error is not None:
            raise self.error
        assert flow_run_filter.parent_flow_run_id.any_ == [PARENT]
        names = [name for name in flow_run_filter.name.any_ if name in self.states]
        return [SimpleNamespace(id=name, state=self.states[name]) for name in names]

    def set_flow_run_state(self, id: str, state: State, force: bool) -> None:
        assert force
        assert state.is_crashed()
        self.crashed[id] = state.message


@pytest.fixture
def prefect(monkeypatch: pytest.MonkeyPatch) -> Prefect:
    prefect = Prefect()
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: prefect)
    monkeypatch.setattr("starpo.flows.flow_run.api_url", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr(ablation, "flow_run", SimpleNamespace(id=str(PARENT)))
    return prefect


Work = Callable[[str], int]
"""Stand-in for the process of a run: the run's name -> exit code."""


@pytest.fixture
def ended(store: Store, prefect: Prefect, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str | None]]:
    """`ended(work, *names)`: run (default: `mine`) -> why it failed; None if it did not."""

    def end(work: Work, *names: str) -> dict[str, str | None]:
        started: list[Process] = []

        def start(flow: Any, parameters: dict[str, Any]) -> Process:
            started.append(Process(work(parameters["run"])))
            return started[-1]

        monkeypatch.setattr(ablation, "run_flow_in_subprocess", start)
        runs: Any = [SimpleNamespace(name=name, config=None, label="x") for name in names or ("mine",)]
        errors = dict(ablation._run_in_processes(store, runs, len(runs)))
        assert not any(process.was_terminated for process in started)
        return errors

    return end


def say(store: Store, name: str, status: RunStatus) -> None:
    store.runs.create(name, flow="starpo", preset="x", config={})
    store.runs.set_state(name, status)


def test_rolled_back_run_with_fork_succeeds(
    ended: Callable[..., dict[str, str | None]], store: Store, prefect: Prefect
) -> None:
    """Its flow run is then named after the fork."""

    def work(name: str) -> int:
        say(store, name, "failed")
        say(store, f"{name}-rollback-7", "completed")
        prefect.states = {f"{name}-rollback-7": Completed(message="All states completed.")}
        return 0

    assert ended(work) == {"mine": None}


def test_a_fork_that_fails_says_why(
    ended: Callable[..., dict[str, str | None]], store: Store, prefect: Prefect
) -> None:
    def work(name: str) -> int:
        say(store, name, "failed")
        say(store, f"{name}-rollback-7", "failed")
        prefect.states = {
            f"{name}-rollback-7": Failed(message="Flow run encountered an exception: E: no remedy is left")
        }
        return 1

    assert ended(work) == {"mine": "E: no remedy is left"}


def test_early_failure_gives_its_reason(
    ended: Callable[..., dict[str, str | None]], store: Store, prefect: Prefect
) -> None:
    say(store, "mine", "completed")  # an earlier run, whose artifacts were deleted since

    def work(name: str) -> int:
        prefect.states = {name: Failed(message="Flow run encountered an exception: ConfigError: no GPU")}
        return 1

    assert ended(work) == {"mine": "ConfigError: no GPU"}


def test_killed_cell_reports_its_signal(
    ended: Callable[..., dict[str, str | None]], store: Store, prefect: Prefect
) -> None:
    def work(name: str) -> int:
        say(store, name, "running")
        prefect.states = {name: Running()}
        return -9

    error = "its process was killed by signal 9 before the run was finished"
    assert ended(work) == {"mine": error}
    assert prefect.crashed == {"mine": error}


def test_busy_server_fails_no_completed_run(
    ended: Callable[..., dict[str, str | None]], store: Store, prefect: Prefect
) -> None:
    prefect.error = httpx.ReadTimeout("nothing for 60 s")

    def work(name: str) -> int:
        say(store, name, "completed" if name == "good" else "failed")
        return 0 if name == "good" else 1

    errors = ended(work, "bad", "good", "worse")
    assert errors["good"] is None
    expected = (
        r"its process ended with exit code 1 before the run was finished; why is not known: the Prefect server .*busy"
    )
    assert re.match(expected, errors["bad"] or "")
    assert re.match(expected, errors["worse"] or "")
