"""A background process gives way to whoever computes, in whatever session."""

import os
import sys
from pathlib import Path

import pytest

from flows.server import Process

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")
AUTOGROUP = Path("/proc/self/autogroup")


@pytest.mark.skipif(os.name != "posix", reason="niceness is of POSIX")
@pytest.mark.parametrize(("is_background", "niceness"), [(True, 19), (False, 0)])
def test_background_steps_back_within_its_session_and_as_a_session(tmp_path, is_background, niceness):
    process = Process("sleep", tmp_path)
    process.start(*SLEEP, is_background=is_background)
    try:
        running = process.running()
        assert running.nice() == os.nice(0) + niceness
        if AUTOGROUP.exists():
            group = Path(f"/proc/{running.pid}/autogroup").read_text()
            name, _, its_niceness = group.partition(" nice ")
            assert int(its_niceness) == niceness
            # Empty for a process that descends from the kernel's first one with no session begun in between.
            assert name != AUTOGROUP.read_text().partition(" nice ")[0]
    finally:
        assert process.stop()
