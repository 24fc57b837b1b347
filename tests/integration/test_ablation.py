"""The flow `ablation` on a real Prefect server: cells that share stages, a cell that fails, and running it again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from starpo.flows.ablation import ablation
from starpo.flows.ablation_plan import AblationPlan, plan_ablation
from starpo.ragen.store import Store
from starpo.ragen.studies.finish import CellsFailedError
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.studies import Ablations

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

GRID = Grid(
    name="clip",
    preset="smoke",
    seeds=[0],
    cells={
        "low clip": {"update.clip_high": 0.28, "policy.warm_start_steps": 120},
        "cold": {"update.clip_high": 0.28, "policy.warm_start_steps": 0},  # without a warm start nothing is kept
        "high clip": {"update.clip_high": 0.4, "policy.warm_start_steps": 120},
    },
    overrides={"filter.max_empty_iterations": 1},
)
GOOD, FAILED = ("low clip", "high clip"), "cold"


@pytest.fixture(scope="module")
def study(
    tmp_path_factory: pytest.TempPathFactory, prefect_server: None, begun: Callable[..., str]
) -> tuple[Store, AblationPlan, int, str]:
    """Store, plan, number of stages planned for the good cells, and error message of the ablation."""
    store = Store(begun(tmp_path_factory.mktemp("store")))
    study = plan_ablation(GRID, store, allow_few_seeds=True)
    plans = study.plans(store)
    planned = {stage for run in study.runs if run.cell.label in GOOD for stage in plans[run.name].stages}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STARPO_THREADS", "1")  # no worker processes below those of the cells
        with pytest.raises(CellsFailedError) as caught:
            ablation(GRID, store=store.url, concurrency=2, allow_few_seeds=True)
    return store, study, len(planned), str(caught.value)


def test_failed_cell_named_others_finish(study: tuple[Store, AblationPlan, int, str]) -> None:
    store, grid, _, error = study
    names = {run.cell.label: run.name for run in grid.runs}
    assert error.startswith(f"1 of 3 runs of the ablation clip failed:\n  {names[FAILED]}: NothingKeptError: ")
    result = Ablations(store.url).get("clip")
    assert [cell.label for cell in result.cells] == [GOOD[0], FAILED, GOOD[1]]
    assert [bool(cell.errors) for cell in result.cells] == [False, True, False]
    base, other = (cell.panels["sokoban"] for cell in result.cells if not cell.errors)
    assert base.difference is None
    assert other.difference.num_prompts == 8
    assert other.difference.mean == pytest.approx(other.last - base.last)
    assert list(base.curve) == [0, 1, 2]
    assert (Path(store.url) / "ablations" / "clip" / "success.svg").read_text().startswith("<svg")


def test_cells_share_stages_and_prompts(study: tuple[Store, AblationPlan, int, str]) -> None:
    store, grid, _, _ = study
    one, other = (store.runs.iterations(run.name) for run in grid.runs if run.cell.label in GOOD)
    for stage in ("warm_start", "rollout", "reward", "variance_filter", "evaluate:sokoban"):
        assert one[0][stage] == other[0][stage]
    assert one[1]["rollout"] != other[1]["rollout"]
    prompts = [
        set(store.read_table("turns", run[1]["rollout"]["turns"])["env_seed"].to_pylist()) for run in (one, other)
    ]
    assert prompts[0] == prompts[1]


def test_league_made_of_stored_runs(study: tuple[Store, AblationPlan, int, str], tmp_path: Path) -> None:
    store, grid, _, _ = study
    league = replace(grid, grid=grid.grid.model_copy(update={"figure": "league"}))
    failed = next(run.name for run in league.runs if run.cell.label == FAILED)
    result, records = league.result(store, {failed: "NothingKeptError: nothing"}), Ablations(str(tmp_path))
    records.save(result)
    assert records.get("clip") == result
    assert set(records.files("clip")) == {"result.json", "success.svg", "league.svg"}
    assert (tmp_path / "ablations" / "clip" / "league.svg").read_text().startswith("<svg")
    assert result.cells[2].at_equal_time is not None


def test_dry_run_predicted_stage_count(study: tuple[Store, AblationPlan, int, str]) -> None:
    store, grid, planned, _ = study
    runs = [run.name for run in grid.runs if run.cell.label in GOOD]
    made = {
        (stage, key)
        for run in runs
        for stages in store.runs.iterations(run).values()
        for stage, keys in stages.items()
        for key in keys.values()
    }
    assert len(made) == planned
    plans = grid.plans(store)
    assert not any(plans[run].new or plans[run].assumed for run in runs)


def test_rerun_repeats_only_failures(study: tuple[Store, AblationPlan, int, str]) -> None:
    store, grid, _, error = study
    place = Path(store.url)
    before = Ablations(store.url).get("clip")
    states = {run.name: store.runs.state(run.name) for run in grid.runs}
    files = {path: path.stat().st_mtime_ns for path in place.glob("*/*/manifest.json")}
    with pytest.raises(CellsFailedError) as caught:
        ablation(GRID, store=store.url, allow_few_seeds=True)
    assert str(caught.value) == error
    assert Ablations(store.url).get("clip") == before
    assert {path: path.stat().st_mtime_ns for path in place.glob("*/*/manifest.json")} == files
    changed = [run.cell.label for run in grid.runs if store.runs.state(run.name) != states[run.name]]
    assert changed == [FAILED]
