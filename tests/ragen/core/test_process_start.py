"""Identity of a process: not that of another one with the same id, and unchanged after the clock was set."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from starpo.flows.background import Process
from starpo.ragen.core.process_start import is_alive, process_start
from starpo.ragen.store.records.leases import _myself

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


def test_process_is_itself_until_end() -> None:
    child = subprocess.Popen(SLEEP)
    try:
        started = process_start(child.pid)
        assert started is not None
        assert started == process_start(child.pid) != process_start(os.getpid())
        assert is_alive(child.pid, started)
        assert not is_alive(child.pid, f"{started}0")
        child.kill()
        deadline = time.monotonic() + 10
        while is_alive(child.pid, started):  # ended, but a zombie until it is waited for
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    assert process_start(child.pid) is None
    assert not is_alive(child.pid, started)


@pytest.fixture
def _stepped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock an hour ahead: the start times that psutil computes from it shift by as much."""
    created = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: created(self) + 3600)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="others keep the time of day of a start")
def test_process_recognised_after_clock_change(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    process = Process("sleep", tmp_path)
    process.start(*SLEEP)
    try:
        holder = _myself()
        request.getfixturevalue("_stepped_clock")
        assert process.running() is not None
        assert holder.is_alive
    finally:
        assert process.stop()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="of Linux")
def test_process_name_with_brackets_and_blanks(tmp_path: Path) -> None:
    strange = tmp_path / "a) R 1 (b"
    strange.symlink_to(sys.executable)
    child = subprocess.Popen(
        [str(strange), "-c", "import time; time.sleep(60)"], env={**os.environ, "PYTHONHOME": sys.base_prefix}
    )
    try:
        its, ours = (int(str(process_start(pid)).partition(":")[2]) for pid in (child.pid, os.getpid()))
        assert 0 <= its - ours < 10**7  # ticks of 10 ms
    finally:
        child.kill()
        child.wait()
