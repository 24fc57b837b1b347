"""Cells of ablations as tasks on a real Ray cluster, through prefect-ray."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from starpo.flows.ablation import ablation
from starpo.flows.ablation_plan import plan_ablation
from starpo.flows.runners import cell_runner
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.ragen.studies.finish import CellsFailedError
from starpo.ragen.studies.grid import Grid
from tests.integration.run_digests import digests

pytestmark = [
    pytest.mark.usefixtures("ray_shut_down"),
    pytest.mark.thorough,
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("prefect_ray") is None, reason="Ray is not installed (pip install 'starpo[ray]')"),
]


@pytest.fixture(autouse=True)
def on_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_POOL", "ray")
    monkeypatch.setenv("STARPO_THREADS", "2")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@task(cache_policy=NO_CACHE)
def settings_of_a_cell() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in ("STARPO_POOL", "STARPO_THREADS")} | {"process": str(os.getpid())}


def test_cell_process_plays_in_itself() -> None:
    @flow
    def cells() -> dict[str, str | None]:
        with cell_runner(1) as runner:
            return runner.submit(settings_of_a_cell, {}).result()

    variables = cells()
    assert variables.pop("process") != str(os.getpid())
    assert variables == {"STARPO_POOL": "processes", "STARPO_THREADS": "1"}


def test_impossible_resources_refused_before_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_RAY_CELL_GPUS", "4")
    message = r"room for 0 of 1 cell .*STARPO_RAY_CELL_CPUS.* CPU 1, GPU 4 on one node"
    with pytest.raises(ConfigError, match=message), cell_runner(1):
        pytest.fail("it should not start")


@pytest.mark.thorough
def test_ablation_digests_equal_process_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two cells, the one without a warm start keeps no group and is named in the error; the other completes."""
    grid = Grid(
        name="on-ray",
        preset="smoke",
        seeds=[0],
        axes={"policy.warm_start_steps": [120, 0]},
        overrides={"filter.max_empty_iterations": 1, "iterations": 1},
    )
    all_digests = []
    for pool in ("ray", "processes"):
        monkeypatch.setenv("STARPO_POOL", pool)
        store = Store(str(tmp_path / pool))
        with pytest.raises(CellsFailedError, match=r"1 of 2 runs .*\n.*NothingKeptError: the filter kept no group"):
            ablation(grid, store=store.url, allow_few_seeds=True)
        run = plan_ablation(grid, store, allow_few_seeds=True).runs[0].name
        assert store.runs.state(run).status == "completed"
        all_digests.append(digests(store, run))
    assert all_digests[0] == all_digests[1]
