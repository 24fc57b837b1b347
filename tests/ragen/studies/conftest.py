"""Grid files, a small base configuration, and runs that have only records, which is all that planning reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.store import Store

GRID = """
preset = "bandit"
seeds = [0, 1, 2]

[axes]
filter.keep = [0.5, 0.25, 1.0]
"""


@pytest.fixture
def base() -> StarPOConfig:
    return StarPOConfig(environment=BanditSettings(), iterations=4, evaluation=EvaluationConfig(num_prompts=8))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write(text)`: write a grid file and return its path."""

    def write(text: str = GRID, name: str = "keep") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return path

    return write


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
