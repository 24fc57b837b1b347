"""Which selections decide the levels of which rollout: in turn, ahead, reused, attempted again, after a fork."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import NothingKeptError
from starpo.ragen.learning.control.standstill import NUM_KEPT
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.ragen.store.records.run import RunStatus
from starpo.tasks.loop.record_walk import walk_record
from starpo.tasks.loop.run_code import code_of
from starpo.tasks.loop.runner import Runner
from starpo.tasks.loop.training import train
from starpo.tasks.rollout import rollout

LEVELS = {
    "environment": {
        "type": "levels",
        "environment": {"type": "frozen_lake", "observation": "compact", "slip": 0.0},
        "fields": ["size"],
        "values": [3, 4],
    },
    "evaluation.num_prompts": 2,
    "iterations": 3,
}
POOLS = {**LEVELS, "curriculum.type": "pools"}
AHEAD = {"rollout.staleness": 1, "update.importance_cap": 2.0}


class Listed(Runner):
    """Runner that lists the stages of a run in the order in which they are recorded.

    Attributes:
        done: (iteration, stage) in this order.
        begun: Names of stages in the order in which they are carried out.
    """

    name, store_url = "mine", "memory://"

    def __init__(self, kept: float = 2.0) -> None:
        self.done: list[tuple[int, Work]] = []
        self.begun: list[str] = []
        self._kept = kept

    def stage(self, iteration: int, work: Work) -> Keys:
        self.begun.append(f"{work.name} {iteration}")
        self.done.append((iteration, work))
        return work.keys

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        self.begun.append(f"{work.name} {iteration}")
        return work.keys

    @contextmanager
    def concurrently(self, iteration: int, work: Work) -> Iterator[Keys]:
        self.begun.append(f"{work.name} {iteration}")
        keys: Keys = {}
        yield keys
        self.done.append((iteration, work))
        keys |= work.keys

    def metric(self, iteration: int, name: str) -> float | None:
        return self._kept if name == NUM_KEPT else None

    def num_kept(self, iteration: int, attempt: int, selection: str) -> int:
        return 2 * attempt

    def named(self, name: str) -> dict[int, Work]:
        return {iteration: work for iteration, work in self.done if work.name == name}


def listed(overrides: dict[str, Any], kept: float = 2.0) -> Listed:
    runner = Listed(kept)
    train(runner, preset("smoke", overrides))
    return runner


def test_rollouts_follow_selections_before_them() -> None:
    runner = listed(POOLS)
    curricula, rollouts, filters = map(runner.named, ("curriculum", "rollout", "variance_filter"))
    assert curricula[0].inputs == {}
    for n in (1, 2):
        assert curricula[n].inputs == {"selection": filters[n - 1].key, "curriculum": curricula[n - 1].key}
    assert [rollouts[n].inputs["curriculum"] for n in range(3)] == [curricula[n].key for n in range(3)]
    assert len({work.key for work in curricula.values()}) == 3


def test_curriculum_changes_no_panel() -> None:
    with_it, without = listed(POOLS), listed(LEVELS)
    first, also_first = (runner.named("evaluate:levels")[0] for runner in (with_it, without))
    assert first.key == also_first.key
    assert "curriculum" not in without.named("rollout")[0].inputs
    assert without.named("curriculum") == {}


def test_plain_rollouts_have_no_curriculum() -> None:
    config = preset("smoke")
    work = rollout(0, config, "0" * 32)
    assert work.inputs == {"checkpoint": "0" * 32}
    assert not any(name.startswith("curriculum") for name in code_of(config))


def test_rollouts_ahead_see_same_selections() -> None:
    """A rollout that is played during the update before it follows the selection that this update trains on."""
    runner, in_turn = listed({**POOLS, **AHEAD}), listed(POOLS)
    assert [list(runner.named("curriculum")[n].inputs) for n in range(3)] == [
        list(in_turn.named("curriculum")[n].inputs) for n in range(3)
    ]
    curricula, filters = runner.named("curriculum"), runner.named("variance_filter")
    assert all(curricula[n].inputs["selection"] == filters[n - 1].key for n in (1, 2))
    assert runner.begun.index("curriculum 1") < runner.begun.index("rollout 1") < runner.begun.index("update 0")
    recorded = [f"{work.name} {iteration}" for iteration, work in runner.done]
    assert recorded.index("update 0") < recorded.index("curriculum 1") < recorded.index("rollout 1")


def test_reused_rollout_counts_once() -> None:
    runner = listed({**POOLS, "online_k": 2, "iterations": 4})
    curricula = runner.named("curriculum")
    assert list(curricula) == [0, 2]
    assert curricula[2].inputs == {"selection": runner.named("variance_filter")[1].key, "curriculum": curricula[0].key}


def test_every_attempt_counts() -> None:
    runner = listed({**POOLS, "rollout.max_attempts": 3, "filter.num_wanted": 2})
    first, second = runner.named("rollout"), runner.named("rollout:1")
    assert first[0].inputs == second[0].inputs
    filters = runner.named("variance_filter"), runner.named("variance_filter:1")
    inputs = runner.named("curriculum")[1].inputs
    assert (inputs["selection"], inputs["selection:1"]) == (filters[0][0].key, filters[1][0].key)


def test_empty_iterations_count() -> None:
    runner = Listed(kept=0.0)
    with pytest.raises(NothingKeptError):
        train(runner, preset("smoke", {**POOLS, **AHEAD, "filter.max_empty_iterations": 2}))
    assert list(runner.named("curriculum")) == [0, 1]
    assert runner.named("curriculum")[1].inputs["selection"] == runner.named("variance_filter")[0].key


def test_fork_continues_the_curriculum() -> None:
    change = {"schedule": [{"iteration": 2, "set": {"filter.keep": 1.0}}]}
    base, fork = listed(POOLS), listed({**POOLS, **change})
    assert base.named("curriculum") == fork.named("curriculum")  # the change is in the selection of iteration 2
    assert base.named("variance_filter")[2] != fork.named("variance_filter")[2]


@pytest.mark.parametrize("overrides", [POOLS, {**POOLS, **AHEAD}], ids=["in turn", "ahead"])
def test_every_cut_record_fits(store: Store, overrides: dict[str, Any]) -> None:
    """A run may be killed after any entry of its record: what is there fits, and nothing is left over."""
    config = preset("smoke", overrides)
    stages = listed(overrides).done
    for num in range(1, len(stages) + 1):
        walk = walked(store, config, f"cut-{num}", stages[:num])
        assert [finding.verdict.is_fault for finding in walk.findings] == [False] * (num < len(stages)), num


def walked(store: Store, config: StarPOConfig, name: str, stages: list[tuple[int, Work]]) -> Any:
    status: RunStatus = "failed"
    store.runs.create(name, flow="starpo", preset="smoke", config=config.model_dump(mode="json"))
    for iteration, work in stages:
        store.runs.record_stage(name, iteration, work.name, work.keys)
    store.runs.set_state(name, status)
    return walk_record(store, store.runs.get(name), config, store.runs.iterations(name))
