"""Scenes: read from an observation or derived from an earlier one and actions, they match the environment."""

import json
import random

import pytest

from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.registry import SCENES
from starpo.ragen.envs import make
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.envs.sokoban.scene import read_board
from starpo.ragen.envs.statements import Scene

ENVIRONMENTS = [
    SokobanSettings(),
    SokobanSettings(observation="coord"),
    SokobanSettings(observation="compact"),
    SokobanSettings(vocabulary="new"),
    FrozenLakeSettings(slip=0.0),
    FrozenLakeSettings(slip=0.6, observation="compact"),
    FrozenLakeSettings(slip=0.6, observation="coord"),
]


@pytest.mark.parametrize("settings", ENVIRONMENTS, ids=str)
def test_derived_scene_equals_shown_scene(settings):
    scene, environment = resolve(SCENES[settings.type]), make(settings)
    for seed in range(20):
        rng = random.Random(seed)
        observation, _ = environment.reset(seed=seed, dynamics_seed=seed)
        before, actions = observation, []
        for _ in range(6):
            action = rng.choice(environment.actions)
            observation, _, terminated, _, info = environment.step(action)
            actions.append(action)
            shown = scene(observation, (), {})
            assert shown is not None
            assert scene(before, actions, json.loads(json.dumps(info))) == shown
            if terminated:
                break


@pytest.mark.parametrize("form", ["grid", "coord", "compact"])
@pytest.mark.parametrize("vocabulary", ["default", "new"])
def test_board_is_read_from_every_form(form, vocabulary):
    environment = make(SokobanSettings(observation=form, vocabulary=vocabulary, num_boxes=2, height=7, width=8))
    for seed in range(20):
        environment.reset(seed=seed)
        assert read_board(environment.render()) == environment.board


@pytest.mark.parametrize(
    "observation",
    [
        "P 1 1 X 2 2 O 3 3",
        "P 1 1 X 2 2 O 9 3\n#####\n#___#\n#___#\n#___#\n#####",
        "P 0 0 X 2 2 O 3 3\n#####\n#___#\n#___#\n#___#\n#####",
        "P 1 1 X 2 2\n#####\n#___#\n#___#\n#___#\n#####",
        "######\n#_P__#\n#_X__#\n#____#\n######",
        f"P 1 1 X 2 2 O 3 {'1' * 5000}\n#####\n#P__#\n#_X_#\n#__O#\n#####",
    ],
)
def test_text_without_room_is_no_board(observation):
    assert read_board(observation) is None


def test_sokoban():
    board = "#####\n#_X_#\n#_P_#\n#__O#\n#####"
    expected = Scene((2, 2), {"box": [(1, 2)], "target": [(3, 3)]})
    assert resolve(SCENES["sokoban"])(board, (), {}) == expected
    on_target = "#####\n#_√_#\n#_P_#\n#___#\n#####"
    assert resolve(SCENES["sokoban"])(on_target, (), {}) == Scene((2, 2), {"box": [(1, 2)], "target": [(1, 2)]})


def test_frozen_lake():
    read = resolve(SCENES["frozen_lake"])
    assert read("P_O\n_O_\n__G", (), {}) == Scene((0, 0), {"goal": [(2, 2)], "hole": [(0, 2), (1, 1)]})
    assert read("__O\n_X_\n__G", (), {}) == Scene((1, 1), {"goal": [(2, 2)], "hole": [(0, 2), (1, 1)]})
    assert read("P_O\n_O_\n__G", ("Down",), {}) is None  # the info does not say where the action led
