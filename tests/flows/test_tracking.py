"""Logging to wandb is complete and in order, and never blocks a run or makes it fail."""

import logging
import os
import threading
from pathlib import Path

import pytest

from starpo.tasks.loop.tracking import Tracker


class FakeRun:
    """Fake of wandb's run that blocks until `may_log` is set, and fails if `fails` is set."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.may_log = threading.Event()
        self.fails = False
        self.num_when_finished = -1

    def log(self, values: dict[str, float], step: int) -> None:
        assert self.may_log.wait(20)
        if self.fails:
            raise RuntimeError("wandb is away")
        self.logged.append((step, values))

    def finish(self) -> None:
        self.num_when_finished = len(self.logged)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    run = FakeRun()
    monkeypatch.setattr("wandb.init", lambda **settings: run)
    return run


@pytest.mark.ci
def test_logging_never_blocks_nor_loses(run):
    tracker = Tracker("a-run", {})
    for iteration in range(5):
        tracker.log(iteration, {"loss": 0.5})  # would block if it waited for wandb
    assert run.logged == []
    run.may_log.set()
    tracker.close()
    assert [step for step, _ in run.logged] == [0, 1, 2, 3, 4]
    assert run.logged[3][1] == {"loss": 0.5, "iteration": 3}
    assert run.num_when_finished == 5


def test_logging_failure_is_a_warning(run, caplog):
    run.fails = True
    run.may_log.set()
    with caplog.at_level(logging.WARNING):
        tracker = Tracker("a-run", {})
        tracker.log(7, {"loss": 0.5})
        tracker.close()
    assert "metrics of iteration 7 could not be logged to wandb: wandb is away" in caplog.text


def test_run_continues_without_wandb(run, caplog, monkeypatch):
    def begin(**settings):
        if settings["mode"] != "disabled":
            raise RuntimeError("no account")
        return run

    def finish():
        raise RuntimeError("no network")

    monkeypatch.setenv("STARPO_WANDB_MODE", "online")
    monkeypatch.setattr("wandb.init", begin)
    monkeypatch.setattr(run, "finish", finish)
    run.may_log.set()
    with caplog.at_level(logging.WARNING):
        tracker = Tracker("a-run", {})
        tracker.log(0, {"loss": 0.5})
        tracker.close()
    assert "run a-run is not logged to wandb, which cannot be started: no account" in caplog.text
    assert "not all logged metrics have reached wandb: no network" in caplog.text


def test_process_tracked_run_is_unchanged(run, monkeypatch):
    """As in a notebook that trains without a server."""
    options = {}
    monkeypatch.setattr("wandb.init", lambda **settings: (options.update(settings), run)[1])
    Tracker("a-run", {}).close()
    assert options["reinit"] == "create_new"


@pytest.mark.parametrize("is_writable", [True, False])
def test_log_under_read_only_home(run, monkeypatch, tmp_path, is_writable):
    """wandb's process prints its log where it cannot write to its cache."""
    home = tmp_path / "home"
    home.mkdir() if is_writable else home.touch()
    monkeypatch.setenv("WANDB_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("STARPO_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("STARPO_WANDB_MODE", "offline")
    run.may_log.set()
    Tracker("a-run", {}).close()
    cache = Path(os.environ["WANDB_CACHE_DIR"])
    assert cache == (home / "cache" if is_writable else tmp_path / "state")
