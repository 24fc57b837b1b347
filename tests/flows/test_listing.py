"""Listings of runs in a terminal: the right numbers, and whole words in 80 columns."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.api.opened_run import runs as open_runs
from starpo.flows.api.opened_run import sql as query
from starpo.flows.cli.runs import runs
from starpo.flows.cli.show import show
from starpo.flows.console.listing import success_line
from starpo.flows.presets import preset
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.store.keeping.garbage import find_garbage
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.ragen.store.keeping.usage import measure
from starpo.ragen.store.remote.opening import open_location
from starpo.schemas.manifest import Stage
from tests.examples import example

STAGE = Stage(name="evaluate", version=1)
NAME = "replay-of-sokoban-starpo-s-s1-f0664c94"


@pytest.fixture
def store(tmp_path) -> Store:
    """Store whose run has a long name and has evaluated its first checkpoint: a variant first, then the panel."""
    store = Store(str(tmp_path / "store"))
    store.runs.create(NAME, flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    for cell, success in (("SokobanNewVocab", 0.0), ("sokoban", 0.25)):
        values = {f"evaluation/{cell}/success{end}": success for end in ("", "_low", "_high")}
        settings = {"cell": cell}
        facts = Facts(key=stage_key(STAGE, settings, {}, 0), stage=STAGE, settings=settings, inputs={}, seed=0)
        store.put_table("metrics", metrics_table(0, f"evaluate:{cell}", values), facts)
        store.put_table("episodes", example("episodes"), replace(facts, headline=values))
        store.runs.record_stage(NAME, 0, f"evaluate:{cell}", {"metrics": facts.key, "episodes": facts.key})
    store.runs.set_state(NAME, "completed", "", {})
    return store


def test_panel_is_of_training_environment(store, capsys):
    show(NAME, store=store.url, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert [row["panel"] for row in shown["per_iteration"]] == [shown["success_first"]] == [0.25]


def test_single_evaluation_shows_no_change(store, capsys):
    show(NAME, store=store.url)
    out = capsys.readouterr().out
    assert "0.250" in out
    assert "->" not in out
    assert success_line(store, NAME) == "0.250 [0.250, 0.250] after 0 updates"


def test_empty_iteration_counts_no_update(store, capsys):
    for stage in ("rollout", "reward", "variance_filter"):
        store.runs.record_stage(NAME, 0, stage, {})
    runs(store=store.url, as_json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["iterations"], row["updates"]) == (1, 0)
    runs(store=store.url)
    out = capsys.readouterr().out
    assert "0 in 1" in out
    why = f"{NAME}: nothing is learned: there is no update in 1 iteration; `starpo diagnose {NAME}` says why"
    assert why in " ".join(out.split())
    store.runs.record_stage(NAME, 1, "update", {})
    runs(store=store.url)
    assert "nothing is learned" not in capsys.readouterr().out


def test_state_warning_below_list_and_tree(store, capsys):
    store.runs.set_state(NAME, "completed", "", {"seconds": 5400.0}, "since iteration 0, nothing is learned: a reason")
    for tree in (False, True):
        runs(store=store.url, tree=tree)
        assert f"{NAME}: since iteration 0, nothing is learned: a reason" in " ".join(capsys.readouterr().out.split())
    runs(store=store.url)
    assert "1.5 h" in capsys.readouterr().out
    store.runs.set_state(NAME, "completed", "", {"seconds": 36.0}, "since iteration 0, nothing is learned: a reason")
    runs(store=store.url)
    assert "36 s" in capsys.readouterr().out
    store.runs.set_state(NAME, "cancelled", "")  # `starpo cancel` keeps both
    assert store.runs.state(NAME).warning == "since iteration 0, nothing is learned: a reason"


def test_success_counted_in_updates(store):
    values = {f"evaluation/sokoban/success{end}": 0.5 for end in ("", "_low", "_high")}
    facts = Facts(key="1" * 32, stage=STAGE, settings={}, inputs={}, seed=0, headline=values)
    store.put_table("episodes", example("episodes"), facts)
    for iteration, stages in enumerate((["rollout"], ["rollout", "update"], ["rollout"])):
        for stage in stages:
            store.runs.record_stage(NAME, iteration, stage, {})
    store.runs.record_stage(NAME, 3, "evaluate:sokoban", {"episodes": facts.key})
    assert success_line(store, NAME).endswith("-> 0.500 [0.500, 0.500] after 1 update")


def test_unlearning_run_shown_as_stalled(store, capsys):
    values = {"filter/num_kept": 0.0, "filter/num_groups": 2.0, "filter/num_zero_variance": 2.0}
    facts = Facts(key="2" * 32, stage=STAGE, settings={}, inputs={}, seed=0)
    store.put_table("metrics", metrics_table(0, "diagnose", values), facts)
    store.runs.record_stage(NAME, 0, "diagnose", {"metrics": facts.key})
    show(NAME, store=store.url)
    assert "stalled: since iteration 0, nothing is learned: no group was kept" in capsys.readouterr().out
    show(NAME, store=store.url, as_json=True)
    assert json.loads(capsys.readouterr().out)["verdict"] == "stalled"


def test_tree_names_damaged_runs_draws_others(store, capsys):
    folder = Path(store.url, "runs")
    (folder / NAME / "state.json").write_text("{}")
    (folder / "a-file").write_text("no run")
    store.runs.create("sound", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    runs(store=store.url, tree=True)
    out = capsys.readouterr().out
    assert f"{NAME}  damaged" in out
    assert "sound  unknown  0 iterations" in out
    assert [line.split()[0] for line in out.splitlines() if " is damaged: " in line] == ["a-file", NAME]
    shutil.rmtree(folder / NAME)
    shutil.rmtree(folder / "sound")
    runs(store=store.url, tree=True)
    assert "a-file is damaged" in capsys.readouterr().out


NAIVE = "2026-01-01T00:00:00"
SETTINGS = {"environment": {"type": "sokoban"}}
RECORDS = {
    "state.json": {"status": "running", "heartbeat": f"{NAIVE}Z"},
    "run.json": {"name": "bad", "flow": "starpo", "preset": None, "created": f"{NAIVE}Z", "config": SETTINGS},
    "iterations/00000.json": {"previous": "", "stages": {"rollout": {"turns": "0" * 32}}},
}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("state.json", RECORDS["state.json"] | {"heartbeat": NAIVE}),
        ("state.json", RECORDS["state.json"] | {"heartbeat": 1e30}),
        ("state.json", RECORDS["state.json"] | {"metrics": {"seconds": "an hour"}}),
        ("state.json", RECORDS["state.json"] | {"metrics": {"seconds": math.nan}}),
        ("state.json", [RECORDS["state.json"]]),
        ("run.json", RECORDS["run.json"] | {"created": NAIVE}),
        ("run.json", RECORDS["run.json"] | {"config": []}),
        ("run.json", None),
        ("iterations/00000.json", RECORDS["iterations/00000.json"] | {"stages": {"rollout": ["turns"]}}),
        ("iterations/00000.json", None),
    ],
)
def test_bad_record_listed_without_hiding_others(store, capsys, path, content):
    folder = Path(store.url, "runs", "bad")
    for name, record in RECORDS.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content if name == path else record))
    if content is None:
        (folder / path).unlink()
        (folder / path).mkdir()
    for options in ({}, {"as_json": True}, {"tree": True}):
        runs(store=store.url, **options)
        out = capsys.readouterr().out
        assert NAME in out
        assert f"runs/bad/{path}" in "".join(out.split())
    assert NAME in [run.name for run in open_runs(store.url)]
    assert "bad" in [
        *measure(open_location(store.url)).damaged,
        *(run.run for run in measure(open_location(store.url)).runs),
    ]
    assert NAME in query("select run from runs", "*", store=store.url)["run"].to_pylist()
    assert f"runs/bad/{path}" in " ".join(damage.what for damage in verify_store(open_location(store.url)).damages)
    if path == "state.json":
        assert find_garbage(open_location(store.url)).running == ["bad"]


@pytest.mark.parametrize(
    "name", ["leases/000001.json", "leases/²", "leases/²²²²²².json", "iterations/3.json", "x.json"]
)
def test_unrelated_file_is_no_fault(store, capsys, name):
    file = Path(store.url, "runs", NAME, name)
    file.parent.mkdir(exist_ok=True)
    holder = {"machine": "another", "process": 1, "started": "x", "heard": NAIVE}
    file.write_text(json.dumps(holder))
    store.runs.set_state(NAME, "running")
    runs(store=store.url, as_json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["fault"]) == ("running", None)


def test_tree_has_replays_imports_and_ends(tmp_path, capsys):
    store = Store(str(tmp_path / "store"))

    def put(name: str, flow: str, parameters: dict[str, Any], checkpoints: str, **settings: float) -> None:
        config = preset("smoke", {"iterations": 4, **settings}).model_dump(mode="json")
        store.runs.create(name, flow=flow, preset="smoke", config=config, parameters=parameters)
        if flow == "starpo":
            store.runs.record_stage(name, 0, "warm_start", {"checkpoint": "first"})
        start = parameters.get("start", 0)
        for iteration, checkpoint in enumerate(checkpoints, start):
            store.runs.record_stage(name, iteration, "rollout", {"turns": "t"})
            if flow != "import":
                store.runs.record_stage(name, iteration, "update", {"checkpoint": checkpoint})

    put("base", "starpo", {}, "abc")
    put("like-the-replay", "replay", {"base": "base", "start": 1}, "xy", **{"filter.keep": 1.0})
    put("from-the-beginning", "replay", {"base": "base", "start": 0}, "pqr", **{"filter.keep": 0.25})
    put("theirs", "import", {}, "..")
    put("fork", "starpo", {}, "axz", schedule=[{"iteration": 1, "set": {"filter.keep": 1.0}}])
    put("orphan", "replay", {"base": "gone", "start": 1}, "uv")
    store.runs.set_state("base", "failed", "stopped")
    store.runs.set_state("theirs", "completed", "imported")
    runs(store=store.url, tree=True, as_json=True)
    trees = {tree["run"]: tree for tree in json.loads(capsys.readouterr().out)}
    assert list(trees) == ["base", "theirs", "orphan"]
    assert [(fork["run"], fork["from"], fork["forks"]) for fork in trees["base"]["forks"]] == [
        ("fork", 1, []),  # its first update is that of a replay, which is no run to branch off from
        ("like-the-replay", 1, []),
        ("from-the-beginning", 0, []),
    ]
    changed = [fork["changed"] for fork in trees["base"]["forks"]]
    assert changed == [{"filter.keep": {"was": 0.5, "is": value}} for value in (1.0, 1.0, 0.25)]
    runs(store=store.url, tree=True)
    out = capsys.readouterr().out
    assert "base  failed  3 iterations" in out
    assert "theirs  import  completed  2 iterations" in out
    assert "from-the-beginning  replay  unknown  3 iterations" in out
    assert "from 0: filter.keep 0.5 -> 0.25" in out


def test_timings_of_performed_stages(store, capsys):
    show(NAME, timings=True, store=store.url, as_json=True)
    assert json.loads(capsys.readouterr().out) == []  # these were stored without timings
    facts = Facts(key="0" * 32, stage=STAGE, settings={}, inputs={}, seed=0, provenance={"seconds": 1.5})
    store.put_table("turns", example("turns"), facts)
    store.runs.record_stage(NAME, 0, "rollout", {"turns": facts.key})
    show(NAME, timings=True, store=store.url, as_json=True)
    [row] = json.loads(capsys.readouterr().out)
    assert row == {"stage": "rollout", "times": 1, "seconds": 1.5, "total": 1.5, "share": 1.0}


@pytest.mark.parametrize("listing", [runs, lambda store: show(NAME, store=store)])
def test_words_are_whole_in_80_columns(listing, store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listing(store=store.url)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    (line,) = [line for line in lines if line.startswith(f" {NAME} ")]
    assert line.split() == [NAME, "completed", "0", "0.250"]
