"""What a run loads: none of the rooms that a Sokoban run with torch does not enter, and few lines."""

from pathlib import Path

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
ROOMS_OF_A_RUN = (
    "starpo.ragen.envs.suites",
    "starpo.ragen.methods",
    "starpo.ragen.evidence",
    "starpo.ragen.studies",
    "starpo.ragen.learning.distillation",
    "starpo.ragen.learning.levels",
    "starpo.ragen.agents.vision.tiny_vision",
    "starpo.flows.console.listing",
)
SHARED = ("base", "grammar", "cells", "statements", "initial_states", "make", "sokoban")
"""Modules of `ragen.envs` that belong to no environment, and the environment that is trained on."""
MAX_LINES = 21_050
MAX_LINES_OF_A_RUN = 35_250
"""Loaded when the last iteration of a run has ended, before its report; lines of files, so comments and blank ones too.
Of these, about 2,700 belong to modules of which such a run uses nothing: exceptions, protocols, maps."""

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


RUN = """
from starpo.flows.console.start import train_settings
from starpo.flows.console.terminal import Console
changes = {"policy.warm_start_steps": 2, "policy.demonstration_turns": 64}
train_settings("smoke", changes, Console(), iterations=1, is_local=True)
"""


@pytest.mark.ci
def test_local_run_loads_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("STARPO_STATE_DIR", str(tmp_path / "state"))
    lines = loaded(["-c", RUN])
    assert "starpo.ragen.learning.learners.update" in lines
    assert [name for name in lines if name.startswith(ROOMS_OF_A_RUN)] == []
    assert sum(lines.values()) <= MAX_LINES_OF_A_RUN
