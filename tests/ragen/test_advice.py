"""The embedded policy's settings with a pretrained model are named, with what to set."""

from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.advice import TINY_PARAMETERS, advise
from starpo.ragen.config.starpo import StarPOConfig

HUB = {"policy.type": "pretrained", "policy.name_or_path": "nobody/none"}
ADAMW = {"update.optimiser.type": "adamw", "update.optimiser.learning_rate": 1e-5}


def of(**settings: Any) -> StarPOConfig:
    return preset("sokoban", {**HUB, **{name.replace("__", "."): value for name, value in settings.items()}})


def test_embedded_policy_preset_is_doubly_misplaced() -> None:
    prompt, optimiser = advise(of(), [])
    assert prompt.startswith("agent.prompt = 'state'")
    assert prompt.endswith("--set agent.prompt=full")
    assert "'muon' at matrix_learning_rate = 0.005" in optimiser
    assert "--set update.optimiser.type=adamw" in optimiser


def test_advised_settings_are_in_place() -> None:
    assert advise(preset("sokoban", {**HUB, **ADAMW, "agent.prompt": "full"}), []) == []


@pytest.mark.parametrize("name", ["sokoban", "smoke", "bandit"])
def test_embedded_policy_gets_no_advice(name: str) -> None:
    assert advise(preset(name), []) == []


def test_exported_embedded_policy_keeps_settings() -> None:
    assert advise(of(), [], TINY_PARAMETERS - 1) == []
    assert len(advise(of(), [], TINY_PARAMETERS)) == 2


def test_learning_rates_by_what_is_trained() -> None:
    high = {**HUB, **ADAMW, "agent.prompt": "full", "update.optimiser.learning_rate": 5e-4}
    (sentence,) = advise(preset("sokoban", high), [])
    assert sentence.startswith(
        "update.optimiser.learning_rate = 0.0005 is high for a pretrained model (at most 0.0001)"
    )
    assert advise(preset("sokoban", {**high, "update.lora": {"rank": 8}}), []) == []


def test_change_after_the_end_is_named() -> None:
    schedule = [{"iteration": n, "set": {"filter.keep": 1.0}} for n in (4, 5)]
    assert advise(preset("sokoban", {"schedule": schedule, "iterations": 6}), []) == []
    (sentence,) = advise(preset("sokoban", {"schedule": schedule, "iterations": 5}), [])
    assert sentence.startswith("schedule: the change at iteration 5 comes after the run's end: --set iterations=N")
