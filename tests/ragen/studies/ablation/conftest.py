"""Grid files and a small base configuration."""

from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.envs.bandit.environment import BanditSettings

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
