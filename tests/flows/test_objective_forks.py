"""Stored runs that measure the gain of an objective: those that kept its settings until success was evaluated."""

from typing import Any

from starpo.flows.objective_forks import fork_gains
from starpo.flows.objectives import Lab
from starpo.flows.presets import preset
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.examples import example
from starpo.schemas.manifest import Stage

STAGE = Stage(name="evaluate", version=1)
CHANGED = {"update.entropy_coefficient": 0.5}


def put_run(store: Store, name: str, schedule: list[dict[str, Any]], successes: dict[int, float]) -> None:
    """Store a run with checkpoint 'c' before iteration 1, and with its success by iteration."""
    config = preset("smoke", {"iterations": 6, "schedule": schedule})
    store.runs.create(name, flow="starpo", preset="smoke", config=config.model_dump(mode="json"))
    store.runs.record_stage(name, 0, "warm_start", {"checkpoint": "first"})
    store.runs.record_stage(name, 0, "update", {"checkpoint": "c"})
    for iteration, success in successes.items():
        settings = {"run": name, "iteration": iteration}
        key = stage_key(STAGE, settings, {}, 0)
        headline = {f"evaluation/sokoban/success{end}": success for end in ("", "_low", "_high")}
        facts = Facts(key=key, stage=STAGE, settings=settings, inputs={}, seed=0, headline=headline)
        store.put_table("episodes", example("episodes"), facts)
        store.runs.record_stage(name, iteration, "evaluate:sokoban", {"episodes": key})


def test_a_fork_that_changed_again_before_it_was_evaluated_is_none_of_the_objectives(tmp_path) -> None:
    store = Store(str(tmp_path / "store"))
    put_run(store, "plain", [], {0: 0.25, 5: 0.5})
    first = {"iteration": 1, "set": CHANGED}
    put_run(store, "a-rolled-back", [first, {"iteration": 3, "set": {"filter.keep": 1.0}}], {0: 0.25, 3: 0.75, 5: 1.0})
    objectives = {"run": preset("smoke"), "more": preset("smoke", CHANGED)}
    lab = Lab("plain", settings={1: objectives})
    assert [(gain.fork, gain.gain) for gain in fork_gains(store, lab, 1, 4)] == [("plain", 0.25)]
    assert [(gain.fork, gain.gain) for gain in fork_gains(store, lab, 1, 2)] == [
        ("plain", 0.25),
        ("a-rolled-back", 0.5),
    ]
