"""Rollouts named by run and iterations, resolved to keys."""

from pathlib import Path

import pytest

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.named_rollouts import named_rollouts


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run of three iterations, where iteration 1 takes two attempts and iteration 2 uses the rollout of iteration 0;
    iteration 3 has begun."""
    store = Store(str(tmp_path))
    store.runs.create("base", flow="starpo", preset=None, config={})
    for iteration, attempts in enumerate([["a"], ["b", "c"], ["a"]]):
        for number, name in enumerate(attempts):
            suffix = f":{number}" if number else ""
            store.runs.record_stage("base", iteration, "rollout" + suffix, {"turns": f"turns-{name}"})
            store.runs.record_stage("base", iteration, "reward" + suffix, {"rewards": f"rewards-{name}"})
            store.runs.record_stage("base", iteration, "variance_filter" + suffix, {"selection": f"selection-{name}"})
    store.runs.record_stage("base", 3, "rollout", {"turns": "turns-d"})
    return store


def test_named_rollouts_list_each_iteration_once(store: Store) -> None:
    assert named_rollouts(store, ["base:1"]) == {
        "turns": "turns-b",
        "rewards": "rewards-b",
        "selection": "selection-b",
        "turns:1": "turns-c",
        "rewards:1": "rewards-c",
        "selection:1": "selection-c",
    }
    keys = named_rollouts(store, ["base:0-2", "base:1"])
    assert [keys[role] for role in ("turns", "turns:1", "turns:2")] == ["turns-a", "turns-b", "turns-c"]
    assert "turns:3" not in keys


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bass:0", r"there is no run 'bass' .*did you mean base\?"),
        ("base:2-3", r"'base:2-3': run 'base' has no rollout with rewards .* in iteration 3; .* iterations 0 to 3"),
        ("base:7", r"in iteration 7"),
    ],
)
def test_what_is_not_recorded_is_named(store: Store, name: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        named_rollouts(store, [name])


def test_import_without_rewards_has_turns_only(store: Store) -> None:
    store.runs.create("demos", flow="import", preset=None, config={}, parameters={"unpaid": [1]})
    for iteration in (0, 1):
        store.runs.record_stage("demos", iteration, "rollout", {"turns": f"turns-{iteration}"})
    assert named_rollouts(store, ["base:0", "demos:1"]) == {
        "turns": "turns-a", "rewards": "rewards-a", "selection": "selection-a", "turns:1": "turns-1"
    }  # fmt: skip
    with pytest.raises(StoreError, match="has no rollout with rewards"):
        named_rollouts(store, ["demos:0"])
