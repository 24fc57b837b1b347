"""What the default flow loads: none of the rooms that a Sokoban run with torch does not enter, and few lines."""

import pytest

from tests.closure import loaded

ROOMS = (
    "starpo.ragen.envs.",
    "starpo.ragen.methods",
    "starpo.ragen.evidence",
    "starpo.ragen.studies",
    "starpo.ragen.agents.vision",
    "starpo.ragen.agents.rollout.vllm.engine",
    "starpo.ragen.agents.rollout.openai.engine",
    "starpo.ragen.agents.rollout.pools.ray_pool",
    "starpo.ragen.learning.learners.deepspeed",
)
SHARED = ("base", "grammar", "cells", "statements", "initial_states", "make", "sokoban")
"""Modules of `ragen.envs` that belong to no environment, and the environment that is trained on."""
MAX_LINES = 20_000

CODE = """
from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
preset("sokoban", {"environment.height": 8})
"""


@pytest.mark.ci
def test_default_flow_loads_no_optional_part() -> None:
    lines = loaded(["-c", CODE])
    assert "starpo.ragen.envs.sokoban.environment" in lines
    shared = {f"starpo.ragen.envs.{name}" for name in SHARED}
    entered = [name for name in lines if name.startswith(ROOMS) and ".".join(name.split(".")[:4]) not in shared]
    assert entered == []
    assert sum(lines.values()) <= MAX_LINES
