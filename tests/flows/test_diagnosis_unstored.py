"""A diagnosis whose results cannot be stored."""

import subprocess
import sys
from pathlib import Path

import pytest

from starpo.flows.api.diagnosis import diagnose_run
from starpo.flows.presets import preset
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.examples import example
from tests.permissions import obey_permissions


def put_played(store: Store, name: str, iterations: int) -> None:
    """Store a run whose iterations lack the metrics of diagnostics."""
    store.runs.create(name, flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    for iteration in range(iterations):
        for stage, kind in (("rollout", "turns"), ("reward", "rewards"), ("variance_filter", "selection")):
            made_by, settings = Stage(name=stage, version=1), {"iteration": iteration}
            facts = Facts(key=stage_key(made_by, settings, {}, 0), stage=made_by, settings=settings, inputs={}, seed=0)
            store.put_table(kind, example(kind), facts)
            store.runs.record_stage(name, iteration, stage, {kind: facts.key})


@pytest.mark.ci
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_unstorable_results_not_counted_computed(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    put_played(Store(str(folder)), "mine", 3)
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    command = [sys.executable, "-m", "starpo.flows.cli", "diagnose", "mine", "--every", "0", "--store", str(folder)]
    try:
        done = subprocess.run(command, preexec_fn=obey_permissions, capture_output=True, text=True, timeout=120)
    finally:
        for path in folders:
            path.chmod(0o755)
    assert done.returncode == 1, done.stderr
    assert "computed and stored" not in done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.startswith("not computed")]
    assert line.startswith("not computed (3): cannot ")
    assert "Permission denied" in line
    diagnosis = diagnose_run(Store(str(folder)), "mine", every=0)
    assert (diagnosis.num_computed, diagnosis.num_failed) == (3, 0)
