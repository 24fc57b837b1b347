"""Stored runs that a back-test counts."""

from starpo.flows.diagnosis import backtest_runs
from starpo.flows.presets import preset
from starpo.ragen.evidence.diagnostics.collapse import SUCCESS
from starpo.ragen.evidence.diagnostics.metrics import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage


def put_run(store: Store, name: str, flow: str, successes: list[float]) -> None:
    """Store a run whose training success is known."""
    store.runs.create(name, flow=flow, preset="smoke", config=preset("smoke").model_dump(mode="json"))
    for iteration, success in enumerate(successes):
        key, table = f"{iteration:032x}", metrics_table(iteration, "diagnose", {SUCCESS: success})
        store.put_table(
            "metrics", table, Facts(key=key, stage=Stage(name="diagnose", version=1), settings={}, inputs={}, seed=0)
        )
        store.runs.record_stage(name, iteration, "rollout", {"turns": key})
        store.runs.record_stage(name, iteration, "diagnose", {"metrics": key})


def test_a_replay_is_no_run_besides_the_one_that_played(tmp_path) -> None:
    store = Store(str(tmp_path / "store"))
    for name, flow in (("mine", "starpo"), ("again", "replay")):
        put_run(store, name, flow, [0.8] * 8 + [0.1] * 8)
    for asked in (None, ["mine", "again"]):
        tested = backtest_runs(store, asked)
        assert [(outcome.run, outcome.fell) for outcome in tested.scores[0].outcomes] == [("mine", 8)]
        assert list(tested.not_judged) == ["again"]
