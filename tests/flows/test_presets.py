from pathlib import Path

import pytest

from flows.presets import FRAGMENTS, names, preset
from ragen.errors import ConfigError


@pytest.mark.parametrize("name", names())
def test_every_preset_resolves_and_survives_json(name: str) -> None:
    config = preset(name)
    assert type(config).model_validate_json(config.model_dump_json()) == config


def test_every_preset_says_what_it_is() -> None:
    folder = Path(preset.__globals__["FOLDER"])
    for name in [*names(), *FRAGMENTS]:
        assert (folder / f"{name}.toml").read_text().startswith("# "), name


def test_starpo_is_the_papers_vanilla_setting() -> None:
    config = preset("sokoban-starpo")
    assert (config.filter.strategy, config.update.advantage) == ("none", "gae")
    assert (config.update.clip_low, config.update.clip_high) == (0.2, 0.2)
    assert (config.update.kl_coefficient, config.update.kl_estimator) == (0.001, "k1")
    assert config.update.entropy_coefficient == 0.001


def test_starpo_s_differs_as_the_paper_says() -> None:
    config = preset("sokoban-starpo-s")
    assert (config.filter.strategy, config.filter.keep) == ("top_fraction", 0.25)
    assert config.update.needs_critic
    assert config.update.kl_coefficient == 0.0
    assert (config.update.clip_low, config.update.clip_high) == (0.2, 0.28)


def test_paper_settings() -> None:
    config = preset("sokoban-paper")
    assert (config.rollout.num_groups, config.rollout.group_size) == (8, 16)
    assert (config.agent.max_turns, config.agent.max_actions_per_turn, config.agent.max_actions) == (5, 5, 10)
    assert (config.rollout.max_response_tokens, config.reward.format_penalty) == (400, -0.1)
    assert (config.evaluation.num_prompts, config.evaluation.temperature) == (256, 0.5)


def test_unknown_preset_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"neither a preset nor a TOML file; presets: .*sokoban"):
        preset("sokobann")


def test_override_reaches_the_setting() -> None:
    assert preset("sokoban", {"filter.keep": 0.25}).filter.keep == 0.25
