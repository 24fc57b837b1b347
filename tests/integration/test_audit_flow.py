"""The flow `audit` on a real Prefect server: its state says what was found, and a fault makes the flow run fail."""

from pathlib import Path

import pyarrow as pa
import pytest

from starpo.flows.audit import audit
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.examples import example

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(300)]


def store_run(store: Store, name: str, kinds: tuple[str, ...]) -> None:
    store.runs.create(name, flow="starpo", preset=None, config={})
    for kind in kinds:
        stage = Stage(name=f"make-{kind}", version=1)
        key = stage_key(stage, {}, {}, 0)
        store.put_table(kind, example(kind), Facts(key=key, stage=stage, settings={}, inputs={}, seed=0))
        store.runs.record_stage(name, 0, stage.name, {kind: key})


def test_the_newest_run_is_audited(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store_run(store, "old", ())
    store_run(store, "Sound.run", ("turns", "rewards", "samples", "metrics"))
    state = audit(store=str(tmp_path), return_state=True)
    assert state.is_completed()
    assert state.message == "no fault in Sound.run"


def test_fault_does_not_block_other_audits(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store_run(store, "faulty", ("turns",))
    stage, turns = Stage(name="reward", version=1), example("turns")
    dearer = pa.array([[reward + 1 for reward in row] for row in turns["action_rewards"].to_pylist()])
    paid = turns.set_column(turns.schema.get_field_index("action_rewards"), "action_rewards", dearer)
    facts = Facts(key=stage_key(stage, {}, {}, 0), stage=stage, settings={}, inputs={}, seed=0)
    store.put_table("rewards", compute_rewards(paid, RewardConfig()), facts)  # for turns that are not stored
    store.runs.record_stage("faulty", 0, "reward", {"rewards": facts.key})
    store_run(store, "damaged", ("metrics", "episodes", "samples"))
    for name in ("faulty", "damaged"):
        store.runs.set_state(name, "running")
    file = next(tmp_path.glob("samples/*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    state = audit(store=str(tmp_path), return_state=True)
    assert state.is_failed()
    assert "faulty, rewards: " in state.message
    assert "damaged: " in state.message
    assert "bytes" in state.message


def test_one_run_some_audits_on_demand(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store_run(store, "chosen", ("turns",))
    store_run(store, "newer", ("turns",))
    state = audit(run="chosen", names=["formats"], store=str(tmp_path), return_state=True)
    assert state.message == "no fault in chosen"


def test_an_empty_store_is_no_fault(tmp_path: Path) -> None:
    state = audit(store=str(tmp_path), return_state=True)
    assert (state.is_completed(), state.message) == (True, "there is no run to audit")
