"""Duration of an SQL query over a million stored turns, as a user makes it."""

import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Facts, Store
from starpo.schemas.datasets import REWARDS
from starpo.schemas.manifest import Stage
from tests.examples import GROUP_SIZE, TURNS_EACH, example_turns

pytestmark = pytest.mark.benchmark

NUM_TURNS = 1_000_000
NUM_ITERATIONS = 200
REPEATS = 5
LIMIT_S = 1.5

QUESTION = """
select iteration, avg(total) as mean_reward, avg((not format_ok)::integer) as invalid
from turns join rewards using (run, iteration, trajectory_id, turn)
group by iteration
order by iteration
"""
SEPARATELY = """
select iteration, mean_reward, invalid
from (select iteration, avg(total) as mean_reward from rewards group by iteration)
join (select iteration, avg((not format_ok)::integer) as invalid from turns group by iteration) using (iteration)
order by iteration
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Store with a run of 200 iterations, each with 5,000 turns and as many rewards, written as stages write them."""
    store = Store(str(tmp_path_factory.mktemp("store")))
    store.runs.create("large", flow="starpo", preset=None, config={})
    num_groups = NUM_TURNS // NUM_ITERATIONS // (GROUP_SIZE * TURNS_EACH)
    work = {"settings": {}, "inputs": {}, "seed": None}
    for iteration in range(NUM_ITERATIONS):
        turns, key = example_turns(num_groups, first_group=iteration), f"{iteration:032x}"
        store.put_table("turns", turns, Facts(key=key, stage=Stage(name="rollout", version=1), **work))
        store.put_table("rewards", rewards_of(turns), Facts(key=key, stage=Stage(name="reward", version=1), **work))
        store.runs.record_stage("large", iteration, "rollout", {"turns": key})
        store.runs.record_stage("large", iteration, "reward", {"rewards": key})
    return store


def rewards_of(turns: pa.Table) -> pa.Table:
    values = np.random.default_rng(0).normal(size=turns.num_rows)
    returns = np.repeat(values.reshape(-1, TURNS_EACH).sum(axis=1), TURNS_EACH)
    columns = {
        **{name: turns[name] for name in ("trajectory_id", "group_id", "turn")},
        "component_names": [["environment", "format"]] * turns.num_rows,
        "component_values": [[value, 0.0] for value in values],
        "total": values,
        "trajectory_return": returns,
        "normalised_return": returns,
        "is_valid": [True] * turns.num_rows,
    }
    return pa.table(columns, schema=REWARDS.schema)


def test_a_question_to_a_million_turns(filled: Store) -> None:
    times: dict[str, list[float]] = {"joined": [], "separately": []}
    for _ in range(REPEATS):
        for name, question in (("joined", QUESTION), ("separately", SEPARATELY)):
            started = time.perf_counter()
            with open_database(filled, ["large"]) as database:
                answer = database.query(question)
            times[name].append(time.perf_counter() - started)
            assert answer.num_rows == NUM_ITERATIONS
    folder = Path(filled.url)
    size_mb = sum(file.stat().st_size for file in folder.rglob("*.parquet")) / 1e6
    print(f"\n{NUM_TURNS} turns in {NUM_ITERATIONS} iterations, {size_mb:.0f} MB of Parquet, run opened and answered:")
    for name, values in times.items():
        print(f"  {name:12} median {statistics.median(values):.2f} s, best {min(values):.2f} s")
    assert statistics.median(times["joined"]) < LIMIT_S
