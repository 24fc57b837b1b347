"""Plans without a server: only keys are computed, no work is done, and nothing is written."""

from pathlib import Path

import pyarrow as pa
import pytest

from starpo.flows.presets import preset
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Facts, Store
from starpo.tasks.diagnose import STAGE as DIAGNOSE
from starpo.tasks.loop.plan import Planner, plan_run
from tests.examples import example


def names(plan) -> dict[str, int]:
    stages = [work.stage.name for work in plan.stages]
    return {name: stages.count(name) for name in dict.fromkeys(stages)}


def put_metrics(store: Store, stage: Work, num_kept: float) -> None:
    """Store metrics under their planned key, as if they had been measured."""
    table = example("metrics").slice(0, 1)
    for name, value in {"name": "filter/num_kept", "value": num_kept}.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array([value], table.schema.field(at).type))
    store.put_table("metrics", table, Facts(key=stage.key, stage=DIAGNOSE, settings={}, inputs={}, seed=None))


def test_plan_lists_stages_and_writes_nothing(tmp_path: Path) -> None:
    plan = plan_run(Store(str(tmp_path / "store")), "mine", preset("smoke"))
    assert names(plan) == {
        "warm_start": 1, "evaluate": 3, "rollout": 2, "probe": 1, "reward": 2, "variance_filter": 2, "diagnose": 2,
        "update": 2,
    }  # fmt: skip
    assert plan.new == plan.stages
    assert plan.assumed == {"filter/num_kept": 0}
    assert not (tmp_path / "store").exists()


def test_online_k_reuses_rollouts(tmp_path: Path) -> None:
    plan = plan_run(Store(str(tmp_path)), "mine", preset("smoke", {"iterations": 4, "online_k": 2}))
    assert (names(plan)["rollout"], names(plan)["update"]) == (2, 4)


@pytest.mark.parametrize(
    ("overrides", "shared"),
    [({"filter.keep": 1.0}, 5), ({"update.clip_high": 0.3}, 7), ({"seed": 1}, 2), ({"evaluation.every": 2}, 14)],
)
def test_runs_share_stages_before_first_difference(tmp_path: Path, overrides, shared: int) -> None:
    """Warm start, first evaluation, rollout, probe, reward | filter, diagnose | update; a seed changes the rollout."""
    store = Store(str(tmp_path))
    one, other = plan_run(store, "a", preset("smoke")), plan_run(store, "b", preset("smoke", overrides))
    assert len(set(one.stages) & set(other.stages)) == shared


def test_stored_data_decide_what_is_planned(tmp_path: Path) -> None:
    store, config = Store(str(tmp_path)), preset("smoke", {"filter.max_empty_iterations": 2})
    first = next(stage for stage in plan_run(store, "mine", config).stages if stage.name == "diagnose")
    put_metrics(store, first, num_kept=0.0)
    plan = plan_run(store, "mine", config)
    assert names(plan)["update"] == 1  # the first iteration kept nothing
    assert plan.assumed == {"filter/num_kept": 1}
    assert plan.stored == {first}


def test_unmeasured_metric_is_not_assumed(tmp_path: Path) -> None:
    """As with gradient norms while only the critic learns: if the stage is stored without them, nothing is assumed."""
    store = Store(str(tmp_path))
    stages = {work.stage.name: work for work in plan_run(store, "mine", preset("smoke")).stages}
    put_metrics(store, stages["diagnose"], num_kept=3.0)
    planner = Planner(store, "mine")
    planner.stage(0, stages["diagnose"])
    assert planner.metric(0, "filter/num_kept") == 3.0
    assert planner.metric(0, "update/gradient_norm") is None
    assert planner.plan.assumed == {}
    planner.stage(0, stages["update"])  # not stored yet, and may measure it
    assert planner.measured(0, ["filter/num_kept", "update/gradient_norm"]) == {}
    assert planner.plan.assumed == {"filter/num_kept": 0, "update/gradient_norm": 0}


def test_a_run_that_stops_says_why(tmp_path: Path) -> None:
    store, config = Store(str(tmp_path)), preset("smoke", {"filter.max_empty_iterations": 1})
    first = next(stage for stage in plan_run(store, "mine", config).stages if stage.name == "diagnose")
    put_metrics(store, first, num_kept=0.0)
    plan = plan_run(store, "mine", config)
    assert plan.stops is not None
    assert "kept no group" in plan.stops
    assert names(plan)["evaluate"] == 1


def test_damaged_data_decide_nothing(tmp_path: Path) -> None:
    store, config = Store(str(tmp_path)), preset("smoke")
    first = next(stage for stage in plan_run(store, "mine", config).stages if stage.name == "diagnose")
    put_metrics(store, first, num_kept=0.0)
    manifest = tmp_path / "metrics" / first.key / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"num_rows": 1', '"num_rows": 2'))
    assert plan_run(store, "mine", config).assumed == {"filter/num_kept": 0}
