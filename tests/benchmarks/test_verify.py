"""Duration of `starpo verify` relative to the run that it verifies: some iterations of the default run.

    pytest -m benchmark tests/benchmarks/test_verify.py -s

The warm start, which verify skips by default, is reported separately: for a long run, the ratio that counts is that of
the iterations, evaluations included.
"""

import time
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.store import Store
from starpo.tasks.loop.record import RunRecorder
from starpo.tasks.loop.verify import verify_run

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800), pytest.mark.usefixtures("prefect_server")]
ITERATIONS = 20


def test_verify_faster_than_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_WANDB_MODE", "offline")
    monkeypatch.setenv("STARPO_STATE_DIR", str(tmp_path / "state"))
    begins: list[float] = []
    note = RunRecorder.training_begins

    def timed(self: RunRecorder) -> None:
        begins.append(time.perf_counter())
        note(self)

    monkeypatch.setattr(RunRecorder, "training_begins", timed)
    started = time.perf_counter()
    run = starpo(preset("sokoban", {"iterations": ITERATIONS}), preset="sokoban", store=str(tmp_path / "store"))
    ended = time.perf_counter()
    verification = verify_run(Store(str(tmp_path / "store")), run, first=1)
    assert verification.is_faultless
    of_run = (ended - begins[0]) / ITERATIONS
    of_verify = verification.seconds / (ITERATIONS - 1)
    print(
        f"an iteration took {of_run:.2f} s, to verify it {of_verify:.2f} s: {of_verify / of_run:.0%}; the run took "
        f"{ended - started:.0f} s, {begins[0] - started:.0f} s of it before the first iteration"
    )
    assert verification.seconds < ended - started
