"""Cost of diagnostics: the stages `diagnose` and `probe` in the default run, which probes every tenth iteration.

    pytest -m benchmark tests/benchmarks/test_diagnostics.py -s

Target: metrics take at most 3% of an iteration, the probe at most 10%. The gradient probe, off by default, is reported
separately.
"""

import statistics
import time
from itertools import pairwise
from pathlib import Path

import pytest

from starpo.flows.diagnosis import diagnose_run
from starpo.flows.presets import preset
from starpo.flows.record import RunRecorder
from starpo.flows.starpo import starpo
from starpo.ragen.store import Store

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800), pytest.mark.usefixtures("prefect_server")]
ITERATIONS = 21
"""Iterations 0, 10 and 20 are probed; the first, which starts the workers, is not measured."""


def test_what_metrics_and_probes_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGEN_WANDB_MODE", "offline")
    monkeypatch.setenv("RAGEN_STATE_DIR", str(tmp_path / "state"))
    ends: list[float] = []
    note = RunRecorder.iteration_done

    def timed(self: RunRecorder, iteration: int) -> None:
        ends.append(time.perf_counter())
        note(self, iteration)

    monkeypatch.setattr(RunRecorder, "iteration_done", timed)
    settings = {"iterations": ITERATIONS, "policy.warm_start_steps": 550, "policy.demonstration_turns": 20_000}
    run = starpo(preset("sokoban", settings), preset="sokoban", store=str(tmp_path / "store"))
    store = Store(str(tmp_path / "store"))
    took = [after - before for before, after in pairwise(ends)]
    plain = statistics.median(seconds for at, seconds in enumerate(took, start=1) if at % 10)
    metrics = statistics.median(seconds_of(store, run, "diagnose"))
    probe = statistics.median(seconds_of(store, run, "probe")[1:])
    started = time.perf_counter()
    num = diagnose_run(store, run, every=20, with_gradients=True).num_computed
    gradients = (time.perf_counter() - started) / num
    print(
        f"an iteration without a probe {plain:.2f} s; metrics {metrics * 1000:.0f} ms, {metrics / plain:.1%}; a probe "
        f"{probe:.2f} s, at every tenth {probe / 10 / plain:.1%}; gradients of 48 groups {gradients:.1f} s, at every "
        f"tenth {gradients / 10 / plain:.1%}"
    )


def seconds_of(store: Store, run: str, stage: str) -> list[float]:
    keys = [stages[stage]["metrics"] for stages in store.runs.iterations(run).values() if stage in stages]
    return [store.manifest("metrics", key).provenance["seconds"] for key in keys]
