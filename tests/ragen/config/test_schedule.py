"""Settings that change during a run: which value applies when, and what is rejected."""

from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError
from starpo.tasks.loop.run_code import code_of

CHANGES = [
    {"iteration": 3, "set": {"update.entropy_coefficient": 0.05, "update.critic.clip_value": None}},
    {"iteration": 7, "set": {"update.entropy_coefficient": 0.0, "update.critic": {"warmup_updates": 2}}},
]


def test_change_holds_until_the_next() -> None:
    config = preset("sokoban", {"schedule": CHANGES})
    assert [config.at(n).update.entropy_coefficient for n in (0, 2, 3, 6, 7, 99)] == [0.01, 0.01, 0.05, 0.05, 0.0, 0.0]
    assert [config.at(n).update.critic.clip_value for n in (2, 3, 7)] == [0.5, None, None]
    assert [config.at(n).update.critic.warmup_updates for n in (6, 7)] == [0, 2]
    assert config.at(2) is config
    assert config.at(3).environment == config.environment
    assert [phase.update.entropy_coefficient for phase in config.phases] == [0.01, 0.05, 0.0]


def test_options_go_with_their_owner() -> None:
    changes = [{"iteration": 3, "set": {"update.advantage": "grpo"}}]
    gigpo = {"update.advantage": "gigpo", "update.advantage_options": {"step_weight": 2.0}}
    config = preset("sokoban", {**gigpo, "schedule": changes})
    assert config.at(2).update.advantage_options["step_weight"] == 2.0
    assert config.at(3).update.advantage_options == {}


def test_schedule_in_identity_only_if_set() -> None:
    assert preset("sokoban", {"schedule": CHANGES}).model_dump(mode="json")["schedule"] == CHANGES


def test_later_phase_code_belongs_to_run() -> None:
    plain = code_of(preset("smoke"))["variance_filter.strategy"]
    later = [{"iteration": 1, "set": {"filter.strategy": "top_p_linear"}}]
    names = code_of(preset("smoke", {"schedule": later}))["variance_filter.strategy"].split()
    assert len(names) == 2
    assert plain in names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"iteration": 3, "set": {"filter": 1.0}}], "filter cannot change during training"),
        ([{"iteration": 3, "set": {"filter.kep": 1.0}}], "from iteration 3 on: filter.kep = 1.0: no such setting"),
        ([{"iteration": 3, "set": {"filter.keep": "all"}}], "from iteration 3 on: filter.keep = 'all': should be"),
        ([{"iteration": 3, "set": {"filter.strategy": "top_k"}}], "from iteration 3 on: .*needs filter.keep_count"),
        ([{"iteration": 3, "set": {"environment.type": "bandit"}}], "environment.type cannot change during training"),
        ([{"iteration": 3, "set": {"seed": 1}}], "seed cannot change during training"),
        ([{"iteration": 3, "set": {"rollout.staleness": 1}}], "it decides which policy plays which rollout"),
        ([{"iteration": 3, "set": {"update.lora.rank": 8}}], "it decides what a checkpoint holds"),
        ([{"iteration": n, "set": {"filter.keep": 1.0}} for n in (5, 3)], r"iterations \[5, 3\]: expected ascending"),
        ([{"iteration": 5, "set": {"filter.keep": 1.0}}] * 2, r"iterations \[5, 5\]: expected ascending, each once"),
    ],
)
def test_invalid_schedule_is_explained(changes: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        preset("sokoban", {"schedule": changes})
