"""Store with a run whose games the demonstrators really played, so that all its data are consistent."""

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.lookup import resolve
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import environment_type, make
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.evidence.audit.database import Database, Retokenise
from starpo.ragen.evidence.audit.views import DATASET_VIEWS, RECORD_VIEWS
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.datasets import SAMPLES, TURNS
from starpo.schemas.manifest import Stage
from tests.ragen.conftest import DEFAULT_TURN

SETTINGS = SokobanSettings(generator="distance", observation="compact")
MAX_TURNS = 3


def played_turns(
    settings: EnvironmentSettings = SETTINGS, *, first_seed: int = 0, num_groups: int = 2, group_size: int = 4
) -> pa.Table:
    """Dataset `turns` of demonstrated games; some members play worse than others, so returns vary."""
    rows: list[dict[str, Any]] = []
    for group in range(num_groups):
        for member in range(group_size):
            rows += _played(settings, first_seed + group, f"g{group:04d}", member, 1.0 if member % 2 else 0.0)
    return pa.Table.from_pylist(rows, schema=TURNS.schema)


def _played(
    settings: EnvironmentSettings, seed: int, group_id: str, member: int, skill: float
) -> Iterator[dict[str, Any]]:
    environment, rng = make(settings), random.Random(f"{seed} {member}")
    observation, _ = environment.reset(seed=seed, dynamics_seed=member)
    first, actions_left = environment.state_digest(), 15
    for turn in range(MAX_TURNS):
        demonstration = resolve(environment_type(settings.type).demonstrator)(environment, skill, rng)
        answer = " || ".join(demonstration.actions)
        done: list[tuple[str, float, bool]] = []
        is_over = False
        shown = observation
        for action in demonstration.actions:
            observation, reward, is_over, _, info = environment.step(action)
            done.append((action, reward, info["effective"]))
            if is_over:
                break
        yield DEFAULT_TURN | {
            "trajectory_id": f"{group_id}-{member}",
            "group_id": group_id,
            "env": settings.type,
            "env_seed": seed,
            "dynamics_seed": member,
            "sampling_seed": member,
            "member": member,
            "turn": turn,
            "observation": shown,
            "response_ids": list(range(3, 6 + turn)),
            "behaviour_logprobs": [-0.5] * (3 + turn),
            "response": f"<think>{demonstration.think}</think><answer>{answer}</answer>",
            "think": demonstration.think,
            "answer": answer,
            "parsed_actions": list(demonstration.actions),
            "executed_actions": [action for action, _, _ in done],
            "action_rewards": [reward for _, reward, _ in done],
            "action_effective": [is_effective for _, _, is_effective in done],
            "terminated": is_over,
            "truncated": not is_over and turn == MAX_TURNS - 1,
            "success": environment.is_success,
            "actions_left": actions_left,
            "initial_state_digest": first,
            "state_digest": environment.state_digest(),
        }
        actions_left -= len(done)
        if is_over:
            return


def samples_of(selection: pa.Table, rewards: pa.Table) -> pa.Table:
    """Dataset `samples` of an update that trained on every trajectory of the kept groups."""
    kept = {row["group_id"] for row in selection.to_pylist() if row["kept"]}
    trained = [row for row in rewards.to_pylist() if row["turn"] == 0 and row["group_id"] in kept]
    rows = [
        {
            "trajectory_id": row["trajectory_id"],
            "group_id": row["group_id"],
            "num_tokens": 9,
            "trajectory_return": row["trajectory_return"],
            "advantage": 0.0,
            "mean_ratio": 1.0,
            "clip_fraction": 0.0,
            "kl_behaviour": 0.0,
            "kl_reference": None,
            "entropy": 0.5,
            "old_behaviour_gap": 0.0,
            "loss_share": 1 / len(trained),
        }
        for row in trained
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES.schema)


def fill(store: Store, run: str = "mine", *, num_iterations: int = 3, online_k: int = 2, first_seed: int = 0) -> None:
    """Store a run: with `online_k` 2, iterations 0 and 1 share a rollout, and iteration 2 has its own."""
    store.runs.create(run, flow="starpo", preset="smoke", config={"filter": {"keep": 0.5}, "seed": first_seed})
    work = {"settings": {"run": first_seed}, "seed": None}

    def put(kind: str, table: pa.Table, stage: str, inputs: dict[str, str], **extra: Any) -> str:
        key = stage_key(Stage(name=stage, version=1), {**work["settings"], **extra}, inputs, None)
        store.put_table(kind, table, Facts(key=key, stage=Stage(name=stage, version=1), inputs=inputs, **work))
        return key

    checkpoint = "0" * 32
    keys: dict[str, str] = {}
    for iteration in range(num_iterations):
        if iteration % online_k == 0:
            turns = played_turns(first_seed=first_seed + 10 * iteration)
            rewards = compute_rewards(turns, RewardConfig())
            selection = select_groups(turns, rewards, FilterConfig(keep=0.5))
            keys["turns"] = put("turns", turns, "rollout", {"checkpoint": checkpoint}, iteration=iteration)
            keys["rewards"] = put("rewards", rewards, "reward", {"turns": keys["turns"]})
            inputs = {"turns": keys["turns"], "rewards": keys["rewards"]}
            keys["selection"] = put("selection", selection, "variance_filter", inputs)
        inputs = {"checkpoint": checkpoint, **keys}
        checkpoint = put("samples", samples_of(selection, rewards), "update", inputs, iteration=iteration)
        metrics = metrics_table(iteration, "update", {"update/entropy": 0.5, "update/gradient_norm": 1.0 + iteration})
        assert put("metrics", metrics, "update", inputs, iteration=iteration) == checkpoint
        for stage, kind in (("rollout", "turns"), ("reward", "rewards"), ("variance_filter", "selection")):
            store.runs.record_stage(run, iteration, stage, {kind: keys[kind]})
        store.runs.record_stage(run, iteration, "update", {"samples": checkpoint, "metrics": checkpoint})
    store.runs.set_state(run, "completed")


@pytest.fixture(scope="session")
def filled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a store with one run; tests must not change it."""
    folder = tmp_path_factory.mktemp("store")
    fill(Store(str(folder)))
    return folder


@pytest.fixture(scope="session")
def filled(filled_folder: Path) -> Store:
    return Store(str(filled_folder))


Ask = Callable[..., Database]


@pytest.fixture
def tables() -> Iterator[Ask]:
    """`tables(turns=table, ...) -> Database`: views over tables in memory, each under run 'r' and iteration 0.

    A list holds one table per iteration. Views of records are used unchanged; `retokenise` is passed to `Database`.
    """
    opened: list[Database] = []

    def open_tables(retokenise: Retokenise = lambda *_: None, **given: pa.Table | Iterable[pa.Table]) -> Database:
        loaded = {
            kind: t if kind in RECORD_VIEWS else _view(kind, [t] if isinstance(t, pa.Table) else list(t))
            for kind, t in given.items()
        }
        empty = {name: schema.empty_table() for name, schema in {**DATASET_VIEWS, **RECORD_VIEWS}.items()}
        opened.append(Database(lambda view, _: {**empty, **loaded}[view], retokenise=retokenise))
        return opened[-1]

    yield open_tables
    for database in opened:
        database.close()


def _view(kind: str, iterations: list[pa.Table]) -> pa.Table:
    """Build the view of a dataset from its tables, one per iteration; a table that occurs again is a reused one."""
    schema = DATASET_VIEWS[kind]
    views = []
    for iteration, table in enumerate(iterations):
        is_reused = any(table is earlier for earlier in iterations[:iteration])
        facts = {"run": "r", "iteration": iteration, "artifact": f"a{iteration}", "is_reused": is_reused}
        facts |= {"staleness": 0, "attempt": 0}
        columns = [
            pa.array([facts[name]] * table.num_rows, schema.field(name).type) if name in facts else table[name]
            for name in schema.names
        ]
        views.append(pa.table(columns, schema=schema))
    return pa.concat_tables(views)
