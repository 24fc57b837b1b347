"""Two processes start the same run: one trains, the other is refused, and the digests are those of a lone process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from starpo.flows.starpo import starpo
from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.garbage import find_garbage
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.ragen.store.remote.opening import open_location
from tests.integration.run_digests import digests
from tests.permissions import obey_permissions

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

TRAIN = """
import sys
from starpo.flows.starpo import starpo
from starpo.ragen.core.errors import StarPOError
try:
    starpo(preset="smoke", store=sys.argv[1], run="mine", iterations=1)
except StarPOError as error:
    sys.exit(f"error: {error}")
"""


def start(store: Path, must_obey: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, str(store)],
        env={**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value() or ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=obey_permissions if must_obey else None,
    )


@pytest.mark.thorough
def test_one_runs_others_are_told(tmp_path: Path, begun: Callable[..., str]) -> None:
    alone = Store(begun(tmp_path / "alone"))
    starpo(preset="smoke", store=alone.url, run="mine", iterations=1)
    store = Store(begun(tmp_path / "store"))
    first = start(tmp_path / "store")
    try:
        deadline = time.monotonic() + 200
        while not store.runs.iterations("mine"):
            assert first.poll() is None, first.stderr and first.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        first.send_signal(signal.SIGSTOP)  # it stays in the middle of its run while the other one tries to start
        with pytest.raises(StoreError, match=rf"process {first.pid} on this machine is working on run 'mine'"):
            starpo(preset="smoke", store=store.url, run="mine", iterations=1)
        state = store.runs.state("mine")
        assert state is not None
        assert state.status != "failed", "who is told must not speak for the run"
        first.send_signal(signal.SIGCONT)
        _, errors = first.communicate(timeout=300)
    finally:
        first.kill()
        first.wait()
    assert first.returncode == 0, errors
    assert store.runs.state("mine").status == "completed"  # type: ignore[union-attr]
    assert digests(store, "mine") == digests(alone, "mine")
    location = open_location(store.url)
    assert verify_store(location).damages == []
    assert find_garbage(location).faults == []
    assert starpo(preset="smoke", store=store.url, run="mine", iterations=1) == "mine"  # the run is free again


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_store_without_permission_to_write(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o555)
    child = start(tmp_path / "store", must_obey=True)
    _, errors = child.communicate(timeout=200)
    assert child.returncode == 1
    message = errors[errors.rindex("error: ") :]
    assert message.startswith(f"error: cannot write {tmp_path}/store/runs/mine/run.json: PermissionError")
    assert "a folder that you may read and write" in message
    assert not list((tmp_path / "store").iterdir())
