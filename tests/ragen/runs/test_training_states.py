"""The initial states of a checkpoint's training, collected from its lineage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.agents.policy.initial_states import write_states
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.runs import training_states as module
from starpo.ragen.runs.training_states import TrainingStates, TrainingWalk, training_states
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import put_folder

WARM_START, ROLLOUT, UPDATE = (Stage(name=name, version=1) for name in ("warm_start", "rollout", "update"))
TINY = {"policy": {"type": "tiny"}}


def digest(letter: str) -> str:
    return letter * 16


class Lineage:
    """Store whose checkpoints are made from turns with named initial states."""

    def __init__(self, folder: Path, make_turns: Callable[..., pa.Table]) -> None:
        self.store = Store(str(folder / "store"))
        self._turns = make_turns

    def first(self, key: str, states: str | None, settings: dict[str, Any] = TINY) -> str:
        with self.store.new_folder() as folder:
            (folder / "weights").write_text(key)
            if states is not None:
                write_states(folder, map(digest, states))
            facts = {"settings": settings, "inputs": {}, "seed": 0}
            put_folder(self.store, "checkpoint", folder, Facts(key=key, stage=WARM_START, **facts))
        return key

    def update(self, key: str, parent: str, turns: str, states: str = "") -> str:
        if states:
            rows = [
                {"group_id": f"g{at}", "env_seed": at, "truncated": True, "initial_state_digest": digest(state)}
                for at, state in enumerate(states)
            ]
            facts = {"settings": {}, "inputs": {"checkpoint": parent}, "seed": 0}
            self.store.put_table("turns", self._turns(rows), Facts(key=turns, stage=ROLLOUT, **facts))
        with self.store.new_folder() as folder:
            (folder / "weights").write_text(key)
            facts = {"settings": {}, "inputs": {"checkpoint": parent, "turns": turns}, "seed": 0}
            put_folder(self.store, "checkpoint", folder, Facts(key=key, stage=UPDATE, **facts))
        return key


@pytest.fixture
def lineage(tmp_path: Path, make_turns: Callable[..., pa.Table]) -> Lineage:
    return Lineage(tmp_path, make_turns)


def test_demonstrations_and_earlier_rollouts_count(lineage: Lineage) -> None:
    first = lineage.first("0" * 32, "ab")
    second = lineage.update("1" * 32, first, "a" * 32, "bc")
    third = lineage.update("2" * 32, second, "b" * 32, "d")
    for checkpoint, states in ((first, "ab"), (second, "abc"), (third, "abcd")):
        assert training_states(lineage.store, checkpoint) == TrainingStates(frozenset(map(digest, states)), 0)


def test_a_walk_takes_no_step_twice(lineage: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The panels of a run's evaluations need the states of every checkpoint: one walk, not one each."""
    chain = [lineage.first("0" * 32, "a")]
    for number, state in enumerate("bcd", 1):
        chain.append(lineage.update(str(number) * 32, chain[-1], state * 32, state))
    other = lineage.update("e" * 32, chain[1], "f" * 32, "e")
    expected = {checkpoint: training_states(lineage.store, checkpoint) for checkpoint in (*chain, other)}
    steps: list[str] = []
    step = module._step
    monkeypatch.setattr(module, "_step", lambda url, key: steps.append(key) or step(url, key))
    walk = TrainingWalk(lineage.store)
    for checkpoint in (*chain, other, chain[2]):
        walk.come_to(checkpoint)
        assert TrainingStates(frozenset(walk.digests), walk.num_unknown) == expected[checkpoint]
    assert steps[: len(chain)] == chain


def test_a_dropped_checkpoint_hides_nothing(lineage: Lineage) -> None:
    second = lineage.update("1" * 32, lineage.first("0" * 32, "a"), "a" * 32, "b")
    third = lineage.update("2" * 32, second, "b" * 32, "c")
    lineage.store.drop("checkpoint", second)
    assert training_states(lineage.store, third) == TrainingStates(frozenset(map(digest, "abc")), 0)


def test_missing_stages_are_counted(lineage: Lineage) -> None:
    """Two origins are unknown: a warm start that recorded no states and a missing rollout. The other rollout counts."""
    second = lineage.update("1" * 32, lineage.first("0" * 32, None), "f" * 32)
    third = lineage.update("2" * 32, second, "b" * 32, "c")
    assert training_states(lineage.store, third) == TrainingStates(frozenset({digest("c")}), 2)
    orphan = lineage.update("4" * 32, "3" * 32, "c" * 32, "d")
    assert training_states(lineage.store, orphan) == TrainingStates(frozenset({digest("d")}), 1)


def test_pretrained_policy_has_no_states(lineage: Lineage) -> None:
    first = lineage.first("0" * 32, None, {"policy": {"type": "pretrained"}})
    assert training_states(lineage.store, first) == TrainingStates(frozenset(), 0)


def test_panel_prompts_seen_in_training() -> None:
    panel = make_panel(FrozenLakeSettings(), 8, panel_seed=3)
    met = TrainingStates(frozenset([*panel.state_digests[:3], "f" * 16]), 2)
    assert met.seen_states(panel) == frozenset(panel.state_digests[:3])
    assert met.facts(panel) == {"num_seen_prompts": 3.0, "num_unknown_origins": 2.0}
    assert TrainingStates(frozenset(), 0).facts(panel) == {"num_seen_prompts": 0.0}


def test_exhaustive_panel_has_no_unseen_part() -> None:
    panel = make_panel(BanditSettings(), 4, panel_seed=0)
    met = TrainingStates(frozenset(panel.state_digests), 0)
    assert (met.seen_states(panel), met.facts(panel)) == (frozenset(), {})
