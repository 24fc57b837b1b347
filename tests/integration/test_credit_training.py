"""Runs that train on measured credit: which is that of `starpo credit`, verified, resumed, and of the right policy."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from starpo.flows.api.credit import Budget, measure_credit
from starpo.flows.api.credit_comparison import compare_estimators
from starpo.flows.cli import app
from starpo.flows.presets import preset
from starpo.ragen.runs.continuations import Continuations
from starpo.ragen.runs.execution import InProcess
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.replay.plan import plan_replay
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from starpo.tasks.loop.plan import plan_run
from starpo.tasks.loop.record import RunRecorder
from starpo.tasks.loop.replay import replay_run
from tests.integration.forging import AFTER_START, RUN, artifact, forge, verify
from tests.integration.run_digests import digests
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

OPTIONS = {"continuations": 4}
MEASURED = {
    "checkpoint_every": 5, "diagnostics.probe_every": 0, "evaluation.every": 100,
    "update.advantage": "monte_carlo", "update.advantage_scale": "none", "update.advantage_options": OPTIONS,
}  # fmt: skip
STAGES = {"stages": [*AFTER_START["stages"], "credit"]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Path:
    """Store with a run of two updates on measured credit, whose checkpoint between them was dropped."""
    folder = tmp_path_factory.mktemp("measured") / "store"
    begun(folder)
    train_run(preset("smoke", MEASURED), store=str(folder), run=RUN)
    return folder


def keys(store: Store, run: str, stage: str, kind: str) -> list[str]:
    return [stages[stage][kind] for stages in store.runs.iterations(run).values() if stage in stages]


def test_update_trains_on_measured_credit(finished: Path) -> None:
    """The stored advantage of a trajectory is the mean over its response tokens of that of their turns."""
    store = Store(str(finished))
    for stages in list(store.runs.iterations(RUN).values())[:2]:
        turns = store.read_table("turns", stages["rollout"]["turns"]).to_pylist()
        sizes = {(row["trajectory_id"], row["turn"]): len(row["response_ids"]) for row in turns}
        sums, tokens = defaultdict[str, float](float), defaultdict[str, int](int)
        for row in store.read_table("credits", stages["credit"]["credits"]).to_pylist():
            assert row["num_continuations"] == OPTIONS["continuations"]
            size = sizes[row["trajectory_id"], row["turn"]]
            sums[row["trajectory_id"]] += size * row["advantage"]
            tokens[row["trajectory_id"]] += size
        samples = store.read_table("samples", stages["update"]["samples"]).to_pylist()
        assert {row["trajectory_id"]: row["advantage"] for row in samples} == pytest.approx(
            {name: total / tokens[name] for name, total in sums.items()}, abs=1e-5
        )


def test_every_stage_is_planned_and_verified(finished: Path) -> None:
    store = Store(str(finished))
    plan = plan_run(store, RUN, preset("smoke", MEASURED))
    assert [work.key for work in plan.stages if work.name == "credit"] == keys(store, RUN, "credit", "credits")
    assert not plan.new
    verification = verify(finished, **STAGES)
    assert verification.is_faultless
    same = {(one.stage, one.check) for one in verification.findings if one.verdict is Verdict.SAME}
    assert {("credit", "credits"), ("update", "checkpoint"), ("update", "advantages")} <= same


def test_forged_credit_is_named(folder: Path) -> None:
    """One that agrees with itself: the turn's reward and its advantage are both higher by one."""
    place = artifact(folder, 1, "credit", "credits")

    def change(rows: list[dict[str, Any]]) -> None:
        rows[-1]["reward"] += 1.0
        rows[-1]["advantage"] += 1.0

    forge(place, change)
    faults = [one for one in verify(folder, **STAGES).findings if one.verdict.is_fault]
    fault = next(one for one in faults if one.stage == "credit")
    assert (fault.iteration, fault.verdict, fault.artifact) == (1, Verdict.DIFFERENT, f"credits/{place.name}")
    assert "reward" in fault.detail


def test_measured_credit_beside_trained_one(folder: Path) -> None:
    """By other continuations, so that the estimator's distance to the truth is seen."""
    store = Store(str(folder))
    measured = measure_credit(store, RUN, 1, budget=Budget(continuations=OPTIONS["continuations"]))
    trained = store.read_table("credits", keys(store, RUN, "credit", "credits")[1])
    assert measured.credits["state"].equals(trained["state"])
    assert measured.credits["returns"] != trained["returns"]
    compared = compare_estimators(store, RUN, 1, measured.credits, ["grpo", "vineppo"])
    assert compared.methods["monte_carlo continuations=4"] == ["run"]
    assert compared.methods["monte_carlo continuations=9 should_whiten=true"] == ["vineppo"]
    query = f"select distinct estimator from credit_estimates where artifact = '{compared.key}'"
    printed = CliRunner().invoke(app, ["sql", RUN, query, "--store", str(folder), "--json"])
    assert "monte_carlo continuations=4" in {row["estimator"] for row in json.loads(printed.stdout)}


def test_interrupted_credit_is_resumed(
    finished: Path, tmp_path: Path, begun: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path / "store")
    play, calls = Continuations.play, list[int]()

    def second_stops(self: Continuations, *arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        play(self, *arguments)

    again = {"store": str(tmp_path / "store"), "run": RUN}
    with monkeypatch.context() as patched:
        patched.setattr(Continuations, "play", second_stops)
        with pytest.raises(KeyboardInterrupt):
            train_run(preset("smoke", MEASURED), **again)
    store = Store(again["store"])
    assert [len(keys(store, RUN, stage, kind)) for stage, kind in (("rollout", "turns"), ("credit", "credits"))] == [
        2,
        1,
    ]
    train_run(preset("smoke", MEASURED), **again)
    assert digests(store, RUN) == digests(Store(str(finished)), RUN)


@pytest.mark.parametrize(
    "ways", [{"rollout.staleness": 1, "update.importance_cap": 2.0}, {"online_k": 2}], ids=["staleness", "online_k"]
)
def test_policy_that_played_is_measured(tmp_path: Path, begun: Callable[..., str], ways: dict[str, Any]) -> None:
    begun(tmp_path / "store")
    train_run(preset("smoke", {**MEASURED, **ways}), store=str(tmp_path / "store"), run=RUN)
    store = Store(str(tmp_path / "store"))
    played = [store.manifest("turns", key).inputs["checkpoint"] for key in keys(store, RUN, "rollout", "turns")]
    credits = keys(store, RUN, "credit", "credits")
    assert [store.manifest("credits", key).inputs["checkpoint"] for key in credits] == played
    assert len(set(played)) == 1
    assert len(set(credits)) == (1 if "online_k" in ways else 2)
    assert verify(tmp_path / "store", **STAGES).is_faultless


def test_replay_trains_on_measured_credit(tmp_path: Path, begun: Callable[..., str]) -> None:
    begun(tmp_path / "store")
    plain = {**MEASURED, "update.advantage": "grpo", "update.advantage_options": {}, "checkpoint_every": 1}
    train_run(preset("smoke", plain), store=str(tmp_path / "store"), run=RUN)
    store = Store(str(tmp_path / "store"))
    changed = {"update.advantage": "monte_carlo", "update.advantage_options": OPTIONS}
    plan = plan_replay(store, RUN, overrides=changed)
    with ModelPlacement() as placement:
        record = RunRecorder.open(
            store.address, "again", flow="replay", preset="smoke", config=plan.config, code={},
            execution=InProcess(placement), parameters=plan.parameters, stop=plan.stop, start=plan.start,
        )  # fmt: skip
        with record:
            replay_run(record, plan, should_evaluate=False)
    assert [store.manifest("credits", key).inputs["turns"] for key in keys(store, "again", "credit", "credits")] == [
        stages["rollout"]["turns"] for stages in store.runs.iterations(RUN).values() if "update" in stages
    ]
    measured = measure_credit(store, RUN, 1, budget=Budget(continuations=OPTIONS["continuations"]))
    left_out = compare_estimators(store, RUN, 1, measured.credits, ["vineppo"]).left_out
    assert "this run did not measure before its update" in left_out["vineppo"]
