"""Levels of one environment: tags, values, shares, play as in a mixture; settings and curricula that are refused."""

from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs import make
from starpo.ragen.envs.check import check
from starpo.ragen.envs.initial_states import fresh_env_seed
from starpo.ragen.envs.mixture.demonstrations import lessons
from starpo.ragen.envs.mixture.environment import MixtureSettings
from starpo.ragen.envs.mixture.levels import Levels, LevelsSettings

LAKE = {"type": "frozen_lake", "observation": "compact", "slip": 0.0}
ROOMS = {"type": "sokoban", "observation": "compact", "generator": "distance"}
LAKES: dict[str, Any] = {"type": "levels", "environment": LAKE, "fields": ["size"], "values": [5, 3, 4]}
LENGTHS = {"type": "levels", "environment": ROOMS, "fields": ["min_solution", "max_solution"]}
POOLS = {"type": "pools"}


def settings(**changes: Any) -> LevelsSettings:
    return LevelsSettings.model_validate({**LAKES, **changes})


def test_every_value_is_a_level() -> None:
    levels = settings().tagged()
    assert {tag: level.model_dump()["size"] for tag, level in levels.items()} == {"size-5": 5, "size-3": 3, "size-4": 4}
    assert list(levels) == ["size-5", "size-3", "size-4"]
    assert all(level.model_dump()["slip"] == 0.0 for level in levels.values())


def test_fields_share_value_or_differ() -> None:
    exact = LevelsSettings.model_validate({**LENGTHS, "values": [1, 2]}).tagged()
    ranges = LevelsSettings.model_validate({**LENGTHS, "values": [[1, 2], [3, 5]]}).tagged()
    bounds = [[(part.min_solution, part.max_solution) for part in each.values()] for each in (exact, ranges)]
    assert bounds == [[(1, 1), (2, 2)], [(1, 2), (3, 5)]]
    assert (list(exact), list(ranges)) == (
        ["min_solution-1", "min_solution-2"],
        ["min_solution-1-2", "min_solution-3-5"],
    )


def test_levels_play_as_their_mixture() -> None:
    levels = settings(shares=[1.0, 2.0, 1.0])
    mixture = MixtureSettings(parts=dict(levels.parts))
    assert levels.assign_parts(40) == mixture.assign_parts(40)
    seeds = [fresh_env_seed(levels, 3, group, excluded=frozenset(), tag="size-4") for group in range(3)]
    one, other = make(levels), make(mixture)
    assert isinstance(one, Levels)
    assert [one.reset(seed=seed) for seed in seeds] == [other.reset(seed=seed) for seed in seeds]
    assert {part.model_dump()["size"] for part in lessons(levels)} == {3, 4, 5}


def test_panel_holds_levels_by_share() -> None:
    levels = settings(shares=[1.0, 2.0, 1.0])
    tags = [levels.tag_of(seed) for seed in make_panel(levels, 8, 5).env_seeds]
    assert {tag: tags.count(tag) for tag in levels.tagged()} == {"size-5": 2, "size-3": 4, "size-4": 2}


def test_conventions_hold() -> None:
    assert check(settings(), should_start_process=False) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"fields": ["sise"]},
            r"fields names 'sise', which environment 'frozen_lake' does not have; did you mean size\?",
        ),
        ({"fields": ["xy"]}, r"which environment 'frozen_lake' does not have\. It has: size, slip, "),
        ({"values": [3, 99]}, r"level size-99 is no 'frozen_lake': size: should be less than or equal to 16"),
        ({"values": [3, 3]}, "two levels have one tag, size-3, size-3"),
        ({"shares": [1.0]}, "shares has 1 entries for 3 values"),
        ({"environment": LAKES}, "fields names 'size', which environment 'levels' does not have"),
        (
            {"fields": ["size", "slip"], "values": [[1, 2, 3], 4]},
            r"expected one value for all of size, slip, or a list of 2",
        ),
    ],
)
def test_impossible_levels_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        preset("smoke", {"environment": {**LAKES, **change}})


@pytest.mark.parametrize(
    ("environment", "curriculum", "message"),
    [
        (
            ROOMS,
            POOLS,
            r"chooses between levels, and environment.type = 'sokoban' has none: set environment.type = 'levels'",
        ),
        (
            LAKES,
            {**POOLS, "levels": ["size-3", "size-6"]},
            r"levels names 'size-6', which the environment does not play and",
        ),
        (
            LAKES,
            {**POOLS, "levels": ["size-3", "size-4"]},
            r"levels = size-3, size-4: expected at least two, and each part",
        ),
        (LAKES, {"type": "pool"}, r"curriculum.*pools"),
        (LAKES, {**POOLS, "target": 1.0}, r"curriculum.target.*less than 1"),
    ],
)
def test_unfit_curricula_are_refused(environment: Any, curriculum: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        preset("smoke", {"environment": environment, "curriculum": curriculum})


def test_settings_without_curriculum_are_unchanged() -> None:
    config = preset("smoke")
    assert "curriculum" not in config.model_dump(mode="json")
    ordered = apply_overrides(config, {"environment": LAKES, "curriculum": POOLS})
    assert ordered.curriculum is not None
    assert ordered.curriculum.order(ordered.tags) == ["size-5", "size-3", "size-4"]
