"""A store whose runs have only records, which is all that planning reads."""

from collections.abc import Callable
from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.store import Store


@pytest.fixture
def begin(store: Store) -> Callable[..., str]:
    """`begin("mine", done=2, iterations=4)`: a run of the preset `smoke` after two of four iterations."""

    def begin(name: str, done: int = 2, **overrides: Any) -> str:
        config = preset("smoke", {path.replace("__", "."): value for path, value in overrides.items()})
        store.runs.create(name, flow="starpo", preset="smoke", config=config.model_dump(mode="json"))
        store.runs.record_stage(name, 0, "warm_start", {"checkpoint": "0" * 32})
        for iteration in range(done):
            store.runs.record_stage(name, iteration, "update", {"checkpoint": f"{iteration + 1:032x}"})
        return name

    return begin
