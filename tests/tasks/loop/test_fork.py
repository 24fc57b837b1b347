"""Forks refused because of their settings alone; forks of real runs are in `tests/integration/test_fork.py`."""

from pathlib import Path
from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.tasks.loop.fork import plan_fork

LATER = {"iteration": 3, "set": {"filter.keep": 1.0}}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Store with the run 'mine' of four iterations, whose filter opens at the last; its checkpoints are made up."""
    store = Store(str(tmp_path / "store"))
    settings = {"iterations": 4, "schedule": [LATER], "filter.keep": 0.5, "update.entropy_coefficient": 0.01}
    store.runs.create("mine", flow="starpo", preset="smoke", config=preset("smoke", settings).model_dump(mode="json"))
    store.runs.record_stage("mine", 0, "warm_start", {"checkpoint": "c0"})
    for iteration in range(4):
        store.runs.record_stage("mine", iteration, "update", {"checkpoint": f"c{iteration + 1}"})
    return store


@pytest.mark.parametrize(
    ("iteration", "change"),
    [
        (3, {"update.entropy_coefficient": 0.01}),
        (3, {"update.entropy_coefficient": 0.01, "filter.keep": 1}),
        (3, {"filter.keep": 1.0}),
    ],
)
def test_unchanged_values_are_rejected(store: Store, iteration: int, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"changes nothing .* from iteration 3 on, 'mine' already has") as error:
        plan_fork(store, "mine", iteration, change)
    assert all(path in str(error.value) for path in change)


@pytest.mark.parametrize(
    ("iteration", "change"),
    [
        (3, {"filter.keep": 0.5}),
        (2, {"filter.keep": 0.5}),  # the same value at iteration 2, but the run's own change at 3 is dropped
        (3, {"update.entropy_coefficient": 0.01, "filter.keep": 0.25}),
    ],
)
def test_later_change_counts_as_change(store: Store, iteration: int, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"would not make checkpoint {iteration} "):  # as it is made up
        plan_fork(store, "mine", iteration, change)
