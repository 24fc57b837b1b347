"""Only one process works on a run at a time; a killed one is replaced at once, a silent one after it expires."""

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.records import leases
from starpo.ragen.store.remote.opening import open_location

HOLDER = """
import sys, time
from starpo.ragen.store import Store
with Store(sys.argv[1]).runs.hold("mine"):
    print("held", flush=True)
    time.sleep(60)
"""

CONTENDER = """
import sys
from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
runs = Store(sys.argv[1]).runs
print("ready", flush=True)
sys.stdin.readline()
try:
    with runs.hold("mine"):
        print("held", flush=True)
        sys.stdin.readline()
except StoreError as error:
    print(f"refused: {error}", flush=True)
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(leases, "EXPIRY_S", 0.6)
    monkeypatch.setattr(leases, "POLL_S", 0.05)


def python(script: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def lease_files(store: Store) -> list[str]:
    return open_location(store.url).names("runs/mine/leases")


@contextmanager
def held_elsewhere(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[leases.Lease]:
    """Hold the lease as if from another machine."""
    lease = store.runs.hold("mine")
    with monkeypatch.context() as patch:
        patch.setattr(leases, "_machine", lambda: "another")
        lease._number = lease._take()
    yield lease


def test_it_is_given_back(store: Store) -> None:
    for _ in range(2):
        with store.runs.hold("mine"):
            assert lease_files(store) == ["000001.json"]
            assert store.runs.is_running("mine")
        assert lease_files(store) == []
        assert not store.runs.is_running("mine")


def test_second_holder_is_refused(store: Store) -> None:
    with store.runs.hold("mine"):
        time.sleep(0.3)  # long enough for another heartbeat of the holder
        with (
            pytest.raises(StoreError, match=rf"process {os.getpid()} on this machine is working on run 'mine'.*follow"),
            store.runs.hold("mine"),
        ):
            pytest.fail("held twice")
        with store.runs.hold("other"):
            pass


@pytest.mark.ci
def test_concurrent_processes_one_holds(local: Store) -> None:
    contenders = [python(CONTENDER, local.url) for _ in range(3)]

    def tell(contender: subprocess.Popen[str]) -> None:
        assert contender.stdin is not None
        contender.stdin.write("go\n")
        contender.stdin.flush()

    def hear(contender: subprocess.Popen[str]) -> str:
        assert contender.stdout is not None
        return contender.stdout.readline()

    try:
        assert {hear(contender) for contender in contenders} == {"ready\n"}
        for contender in contenders:
            tell(contender)
        responses = sorted(map(hear, contenders))
    finally:
        for contender in contenders:
            contender.communicate(timeout=30)
    assert responses[0] == "held\n"
    for refusal in responses[1:]:
        assert refusal.startswith("refused: process ")
        assert "give this run another name" in refusal
    assert lease_files(local) == []


@pytest.mark.ci
def test_killed_holder_is_succeeded_at_once(local: Store) -> None:
    holder = python(HOLDER, local.url)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert local.runs.is_running("mine")
    with pytest.raises(StoreError, match=f"process {holder.pid} on this machine"), local.runs.hold("mine"):
        pytest.fail("held twice")
    holder.send_signal(signal.SIGKILL)
    time.sleep(0.2)  # it is dead, but not yet reaped
    assert not local.runs.is_running("mine")
    started = time.monotonic()
    with local.runs.hold("mine"):
        assert time.monotonic() - started < 0.5
        assert lease_files(local) == ["000002.json"]
    holder.communicate()


def test_remote_holder_with_heartbeat_is_respected(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_elsewhere(store, monkeypatch):
        path, location = "runs/mine/leases/000001.json", open_location(store.url)
        elsewhere = leases.Holder.model_validate_json(location.read(path))
        pauses = []

        def sleep(seconds: float) -> None:  # it sends a heartbeat while it is watched
            pauses.append(seconds)
            location.replace(path, leases._json(elsewhere.model_copy(update={"heard": datetime.now(UTC)})))

        monkeypatch.setattr(leases.time, "sleep", sleep)
        with pytest.raises(StoreError, match="a process on another machine is working"), store.runs.hold("mine"):
            pytest.fail("held twice")
        assert len(pauses) == 1


def test_silent_holder_elsewhere_is_succeeded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_elsewhere(store, monkeypatch) as sleeper:
        assert store.runs.is_running("mine")
        started = time.monotonic()
        with store.runs.hold("mine"):
            assert time.monotonic() - started >= leases.EXPIRY_S
            assert lease_files(store) == ["000002.json"]
            sleeper._stop.wait = lambda _: False  # type: ignore[method-assign]
            sleeper._beat()  # it wakes up
            assert sleeper.is_lost
            with pytest.raises(StoreError, match=r"run 'mine' .* was taken over by another process"):
                sleeper.check()
            assert lease_files(store) == ["000002.json"]


@pytest.mark.ci
@pytest.mark.parametrize("data", [b"", b"{", b"[]"])
def test_unreadable_lease_expires(store: Store, data: bytes) -> None:
    open_location(store.url).replace("runs/mine/leases/000007.json", data)
    started = time.monotonic()
    with store.runs.hold("mine"):
        assert time.monotonic() - started >= leases.EXPIRY_S
        assert lease_files(store) == ["000008.json"]


def test_stale_remote_heartbeat_is_ignored(store: Store) -> None:
    old = leases._myself().model_copy(update={"machine": "another", "heard": datetime.now(UTC) - timedelta(minutes=3)})
    open_location(store.url).replace("runs/mine/leases/000001.json", leases._json(old))
    assert not store.runs.is_running("mine")


def test_failed_renewal_does_not_end_work(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with store.runs.hold("mine") as lease:
        with monkeypatch.context() as patch:
            patch.setattr(lease._location, "replace", lambda *_: (_ for _ in ()).throw(StoreError("no answer")))
            time.sleep(0.3)
        assert "could not be renewed: no answer" in caplog.text
        lease.check()
    assert lease_files(store) == []


def test_run_without_lease_follows_state(store: Store) -> None:
    """Runs of earlier releases have no lease."""
    assert not store.runs.is_running("mine")
    store.runs.set_state("mine", "running")
    assert store.runs.is_running("mine")
    store.runs.set_state("mine", "completed")
    assert not store.runs.is_running("mine")


def test_it_does_not_name_the_machine(store: Store) -> None:
    with store.runs.hold("mine"):
        assert platform.node() not in open_location(store.url).read("runs/mine/leases/000001.json").decode()


def test_unreleased_lease_can_be_retaken(store: Store) -> None:
    """The store is unreachable when the lease is released; the same process can take the lease again."""

    def unreachable(*_: object) -> None:
        raise StoreError("out of reach")

    with pytest.MonkeyPatch.context() as broken, store.runs.hold("mine") as lease:
        broken.setattr(lease._location, "delete", unreachable)
        lease.__exit__(None, None, None)
    with store.runs.hold("mine") as again:
        again.check()


@pytest.mark.ci
def test_undeletable_old_lease_is_ignored(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dead = leases._myself().model_copy(update={"machine": "another", "heard": datetime.now(UTC) - timedelta(days=1)})
    open_location(store.url).replace("runs/mine/leases/000001.json", leases._json(dead))

    def unreachable(*_: object) -> None:
        raise StoreError("out of reach")

    with monkeypatch.context() as broken:
        broken.setattr(store._location, "delete", unreachable)
        lease = store.runs.hold("mine").__enter__()
    assert "older leases of run mine could not be deleted: out of reach" in caplog.text
    lease.check()
    lease.__exit__(None, None, None)
    with store.runs.hold("mine"):
        assert lease_files(store) == ["000002.json"]


def test_suspended_holder_loses_its_lease(store: Store) -> None:
    """All leases were released meanwhile, and a third process took the same number."""
    with store.runs.hold("mine") as lease:
        (name,) = lease_files(store)
        path = f"runs/mine/leases/{name}"
        location = open_location(store.url)
        holder = leases._parse(location.read(path))
        other = holder.model_copy(update={"machine": "another", "process": holder.process + 1})
        location.replace(path, other.model_dump_json().encode())
        deadline = time.monotonic() + 10
        while not lease.is_lost and time.monotonic() < deadline:
            time.sleep(0.05)
        assert lease.is_lost
        with pytest.raises(StoreError, match="was taken over by another process"):
            lease.check()
    assert lease_files(store) == [name]
