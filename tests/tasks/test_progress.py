"""A separate thread writes a run's state: no stage waits for it, and the final state is stored when the run ends."""

import itertools
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import Runs
from starpo.tasks.progress import RunProgress


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path))
    store.runs.create("mine", flow="starpo", preset=None, config={})
    return store


def test_say_never_blocks_and_keeps_latest(store, monkeypatch):
    written, begun, may_go_on = [], threading.Event(), threading.Event()

    def slow(self, run, status, message, metrics, warning):
        written.append((status, message, dict(metrics)))
        begun.set()
        assert may_go_on.wait(30)
        return datetime.now(UTC)

    monkeypatch.setattr(Runs, "set_state", slow)
    progress = RunProgress(store.url, "mine")
    progress.say("one", a=1.0)
    assert begun.wait(30)
    for message in ("two", "three", "four"):
        progress.say(message, b=2.0)
    may_go_on.set()
    progress._writer.submit(lambda: None).result()
    assert written == [("running", "one", {"a": 1.0}), ("running", "four", {"a": 1.0, "b": 2.0})]


def test_rapid_stages_write_one_state(store, monkeypatch):
    written = []
    monkeypatch.setattr(Runs, "set_state", lambda self, run, status, message, metrics, warning: written.append(message))
    progress = RunProgress(store.url, "mine")
    for message in ("reward", "variance_filter", "update"):
        progress.say(message)
    progress._writer.submit(lambda: None).result()
    assert written == ["update"]


def test_message_during_write_is_not_lost(store, monkeypatch):
    monkeypatch.setattr("starpo.tasks.progress._SETTLING_S", 0.0)
    for moment in itertools.count():
        written, waiting, num_passed = [], [], itertools.count()
        progress = RunProgress(store.url, "mine")
        monkeypatch.setattr(progress, "_writer", SimpleNamespace(submit=waiting.append))
        monkeypatch.setattr(Runs, "set_state", lambda *given, to=written: to.append(given[3]))
        progress.say("one")

        def interrupt(frame, event, _, progress=progress, moment=moment, num_passed=num_passed):
            if frame.f_code is not RunProgress._write_newest.__code__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and next(num_passed) == moment:
                progress.say("two")
            return interrupt

        with traced_by(interrupt):
            waiting.pop(0)()
        if next(num_passed) <= moment:  # writing has fewer operations: all were tried
            break
        for write in waiting:
            write()
        assert written[-1] == "two", f"said before operation {moment} of writing"
    assert moment > 5


@contextmanager
def traced_by(trace):
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def test_the_end_is_the_last_word(store):
    progress = RunProgress(store.url, "mine")
    for number in range(50):
        progress.say(f"stage {number}", success=0.5, fraction=None)
        progress.part(1, 1)
    progress.end("completed", "completed")
    state = store.runs.state("mine")
    assert (state.status, state.message, state.metrics) == ("completed", "completed", {"success": 0.5})


def test_write_failure_warns_then_raises(store, monkeypatch, caplog):
    def fail(*_):
        raise StoreError("no room")

    monkeypatch.setattr(Runs, "set_state", fail)
    progress = RunProgress(store.url, "mine")
    progress.say("one")
    progress._writer.submit(lambda: None).result()
    assert "the state of run mine could not be written: no room" in caplog.text
    with pytest.raises(StoreError, match="no room"):
        progress.end("failed", "it failed")


def test_abandoned_run_state_is_untouched(store, monkeypatch):
    monkeypatch.setattr("starpo.tasks.progress._SETTLING_S", 0.5)
    progress = RunProgress(store.url, "mine")
    progress.say("one")
    progress.abandon()
    assert store.runs.state("mine") is None


def test_stage_reports_parts_and_time_left(store, monkeypatch):
    monkeypatch.setattr("starpo.tasks.progress.time.monotonic", iter([100.0, 130.0]).__next__)
    monkeypatch.setattr(RunProgress, "_write_soon", lambda self: None)
    progress = RunProgress(store.url, "mine")
    progress.say("fine-tuning", iteration=0.0)
    progress.counting("step")(5, 20)  # at 100 s; what came before may be preparation
    assert progress._facts == {"iteration": 0.0, "fraction": 0.25}
    progress.counting("step")(10, 20)  # 5 steps took 30 s, and 10 are left
    assert progress._message == "fine-tuning step 10 of 20"
    assert progress._facts == {"iteration": 0.0, "fraction": 0.5, "stage_seconds_left": 60.0}
    monkeypatch.undo()
    progress.say("rollout")
    assert progress._facts == {"iteration": 0.0}


def test_rollout_reports_responses_or_shards(store, monkeypatch):
    monkeypatch.setattr("starpo.tasks.progress.time.monotonic", iter(range(10, 1000, 10)).__next__)
    monkeypatch.setattr(RunProgress, "_write_soon", lambda self: None)
    progress = RunProgress(store.url, "mine")
    progress.say("rollout")
    here = SimpleNamespace(on_responses=None)
    assert progress.watch(here, 80) is None
    here.on_responses(7)
    assert (progress._message, progress._facts) == ("rollout response 7 of at most 80", {})
    on_shard = progress.watch(SimpleNamespace(), 80)
    on_shard(1, 4)  # 10 s after `watch` by this clock
    assert progress._message == "rollout shard 1 of 4"
    assert progress._facts == {"fraction": 0.25, "stage_seconds_left": 30.0}
