"""A background process gives way to whoever computes in its session, which is that of the runs."""

import os
import sys

import pytest

from flows.server import Process

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.mark.skipif(os.name != "posix", reason="niceness is of POSIX")
@pytest.mark.parametrize("is_background", [True, False])
def test_background_steps_back_within_the_session_of_whoever_starts_it(tmp_path, is_background):
    process = Process("sleep", tmp_path)
    process.start(*SLEEP, is_background=is_background)
    try:
        running = process.running()
        assert os.getsid(running.pid) == os.getsid(0)
        assert running.nice() == os.nice(0) + 19 * is_background
        if hasattr(os, "SCHED_IDLE"):
            idle = os.sched_getscheduler(running.pid) == os.SCHED_IDLE
            assert idle is is_background
    finally:
        assert process.stop()
