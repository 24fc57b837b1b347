import json

import pyarrow as pa
import pytest

from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.studies.outcomes import read_evaluations, read_outcome, read_seconds, read_training_success
from starpo.schemas.manifest import Stage
from tests.examples import example

STAGE = Stage(name="evaluate", version=1)


def put(store, iteration, table, panel="sokoban"):
    settings = {"iteration": iteration, "panel": panel}
    key = stage_key(STAGE, settings, {}, 0)
    store.put_table("episodes", table, Facts(key=key, stage=STAGE, settings=settings, inputs={}, seed=0))
    store.runs.record_stage("mine", iteration, f"evaluate:{panel}", {"episodes": key, "metrics": key})


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path))
    store.runs.create("mine", flow="starpo", preset=None, config={})
    return store


def replaced(table: pa.Table, **columns) -> pa.Table:
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    return table


def test_rates_by_prompt_without_errors(store):
    one = example("episodes")
    assert one["env_seed"].to_pylist() == [7, 8]
    twice = pa.concat_tables([one, replaced(one, member=[1, 1])])  # prompts 7, 8, 7, 8
    status = ["ok", "format_error", "ok", "env_error"]
    put(store, 0, replaced(twice, success=[True, False, False, True], status=status))
    rates = read_evaluations(store, "mine")["sokoban"][0]
    assert {seed: rate for (seed, _), rate in rates.items()} == {7: 0.5, 8: 0.0}


def test_cell_has_returns_and_totals(store):
    one = example("episodes")
    status, returns = ["truncated", "timeout"], [2.5, 9.0]
    table = replaced(one, status=status, episode_return=returns, num_format_errors=[1, 0])
    facts = {"stage": STAGE, "settings": {}, "inputs": {}, "seed": 0}
    key = stage_key(STAGE, {}, {}, 0)
    store.put_table("episodes", table, Facts(key=key, headline={"evaluation/sokoban/engine_cost": 0.25}, **facts))
    outcome = read_outcome(store, key, "sokoban")
    assert list(outcome.returns.values()) == [(2.5, 1)]
    assert outcome.totals == {
        "num_errors": 1, "num_episodes": 1, "num_truncated": 1, "num_turns": 1, "num_format_errors": 1,
        "num_response_tokens": one["num_response_tokens"][0].as_py(), "cost": 0.25,
    }  # fmt: skip


def test_iterations_ascend_and_panels_are_apart(store):
    put(store, 5, example("episodes"))
    put(store, 0, example("episodes"))
    put(store, 0, example("episodes"), panel="Variant")
    panels = read_evaluations(store, "mine")
    assert {name: list(iterations) for name, iterations in panels.items()} == {"sokoban": [0, 5], "Variant": [0]}


def put_metrics(store, iteration, stage, **values):
    made_by = Stage(name=stage, version=1)
    key = stage_key(made_by, {"iteration": iteration}, {}, 0)
    named = {name.replace("__", "/"): value for name, value in values.items()}
    store.put_table(
        "metrics", metrics_table(iteration, stage, named), Facts(key=key, stage=made_by, settings={}, inputs={}, seed=0)
    )
    store.runs.record_stage("mine", iteration, stage, {"metrics": key})


def test_training_success_is_by_iteration(store):
    assert read_training_success(store, "mine") == {}
    for iteration in (0, 1):
        put_metrics(store, iteration, "diagnose", rollout__success_rate=0.5 + iteration / 4, rollout__entropy=1.0)
        put_metrics(store, iteration, "update", update__entropy=1.0)
    assert read_training_success(store, "mine") == {0: 0.5, 1: 0.75}


def set_seconds(artifact, seconds):
    manifest = json.loads((artifact / "manifest.json").read_text())
    manifest["provenance"]["seconds"] = seconds
    (artifact / "manifest.json").write_text(json.dumps(manifest))


def test_training_seconds_count_stages_once(tmp_path, make_run):
    store = Store(str(tmp_path))
    make_run(store, "mine", 2)
    records = store.runs.iterations("mine")
    store.runs.record_stage("mine", 1, "rollout", records[0]["rollout"])  # reused, as with Online-k
    took = {}
    for iteration, stages in store.runs.iterations("mine").items():
        for number, stage in enumerate(("rollout", "reward", "variance_filter", "update"), start=1):
            for kind, key in stages[stage].items():
                set_seconds(tmp_path / kind / key, took.setdefault((stage, key), number + 10 * iteration))
    assert read_seconds(Store(str(tmp_path)), "mine") == {0: 0.0, 1: 10.0}


def test_seconds_count_every_attempt(tmp_path, make_run):
    store = Store(str(tmp_path))
    make_run(store, "mine", 2)
    records = store.runs.iterations("mine")
    store.runs.record_stage("mine", 0, "rollout:1", records[1]["rollout"])
    for iteration, stages in records.items():
        for stage, keys in stages.items():
            seconds = 1.0 if stage in ("rollout", "reward", "variance_filter", "update") else 100.0
            for kind, key in keys.items():
                set_seconds(tmp_path / kind / key, 7.0 if (iteration, stage) == (1, "rollout") else seconds)
    assert read_seconds(Store(str(tmp_path)), "mine") == {0: 0.0, 1: 4.0 + 7.0}
