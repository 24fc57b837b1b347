"""Results under a deadline depend on the clock, so they are not marked as deterministic."""

from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from starpo.tasks.evaluate import evaluate
from starpo.tasks.rollout import rollout
from tests.examples import put_folder

POLICY = Path(__file__).parents[1] / "golden" / "checkpoint"


@pytest.mark.parametrize(("deadline_s", "is_deterministic"), [(None, True), (600.0, False)])
def test_deadline_makes_outputs_nondeterministic(
    tmp_path: Path, deadline_s: float | None, is_deterministic: bool
) -> None:
    store = Store(str(tmp_path))
    facts = {"stage": Stage(name="made", version=1), "settings": {}, "inputs": {}, "seed": None}
    put_folder(store, "checkpoint", str(POLICY), Facts(key="c" * 32, **facts))
    config = preset("smoke", {"rollout.deadline_s": deadline_s} if deadline_s else {})
    turns = rollout(0, config, "c" * 32).carry_out(store)["turns"]
    assert store.manifest("turns", turns).is_deterministic == is_deterministic
    settings = (config.environment, config.agent, config.rollout, config.evaluation)
    episodes = evaluate(0, "sokoban", *settings, "c" * 32, lineage=store.url).carry_out(store)["episodes"]
    assert store.manifest("episodes", episodes).is_deterministic == is_deterministic
