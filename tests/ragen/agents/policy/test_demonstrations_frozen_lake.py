"""FrozenLake's demonstrator: true statements, feasible walks, mediocre success."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs import make
from starpo.ragen.envs.frozen_lake import steps
from starpo.ragen.envs.frozen_lake.demonstrations import demonstrate
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.frozen_lake.map import LakeMap

SEEDS = st.integers(0, 2**63 - 1)


def success(skill, num_episodes=600, **kwargs):
    """Share of episodes in which the demonstrator reaches the goal within 5 turns and 10 actions."""
    environment = make(FrozenLakeSettings(**kwargs))
    successes = 0
    for seed in range(num_episodes):
        environment.reset(seed=seed, dynamics_seed=seed)
        rng = random.Random(seed)
        actions_left = 10
        for _ in range(5):
            if environment.is_over:
                break
            for action in demonstrate(environment, skill, rng).actions[:actions_left]:
                actions_left -= 1
                if environment.step(action)[2]:
                    break
        successes += environment.is_success
    return successes / num_episodes


@given(seed=SEEDS, skill=st.floats(0, 1), slip=st.sampled_from([0.0, 2 / 3]), size=st.integers(2, 6))
@settings(max_examples=80, deadline=None)
def test_thought_is_true_and_walk_follows(seed, skill, slip, size):
    environment = make(FrozenLakeSettings(slip=slip, size=size))
    environment.reset(seed=seed)
    before = environment.state_digest()
    demonstration = demonstrate(environment, skill, random.Random(seed))
    assert environment.state_digest() == before
    (row, column) = environment.lake.coordinates(environment.cell)
    (goal_row, goal_column) = environment.lake.coordinates(environment.lake.goal)
    vertical = {-1: "up ", 0: "", 1: "down "}[(goal_row > row) - (goal_row < row)]
    horizontal = {-1: "left ", 0: "", 1: "right "}[(goal_column > column) - (goal_column < column)]
    facts, _, walk = demonstration.think.partition(" go ")
    assert facts == f"G {vertical}{horizontal}".strip()
    numbers = list(map(int, walk.replace(" from", "").split()))
    cells = list(zip(numbers[::2], numbers[1::2], strict=True))[::-1]
    lake, cell = environment.lake, environment.cell
    assert 1 <= len(demonstration.actions) <= (2 if slip else 5)
    for number, action in enumerate(demonstration.actions):
        cell = lake.move(cell, action)
        assert cells[number] == lake.coordinates(cell)
        assert not lake.is_end(cell) or number == len(cells) - 1
    assert len(cells) == len(demonstration.actions) or len(demonstration.actions) == (2 if slip else 5)


@given(seed=SEEDS, skill=st.floats(0, 1), size=st.integers(2, 6))
@settings(max_examples=80, deadline=None)
def test_steps_name_cells_and_avoided_holes(seed, skill, size):
    environment = make(FrozenLakeSettings(slip=0.0, size=size))
    environment.reset(seed=seed)
    demonstration = steps.demonstrate(environment, skill, random.Random(seed))
    destination, _, text = demonstration.think.partition(" by ")
    lake, cell, walked = environment.lake, environment.cell, []
    row, column = map(int, destination.split()[-2:])
    assert row * size + column not in lake.holes
    for move, *rest in re.findall(r"([A-Z][a-z]+) (\d+) (\d+)( O)?", text):
        ahead = lake.move(cell, move)
        assert (int(rest[0]), int(rest[1])) == lake.coordinates(ahead)
        assert (ahead in lake.holes) == bool(rest[2])
        if ahead not in lake.holes:
            walked.append(move)
            cell = ahead
    assert tuple(walked) == demonstration.actions
    assert lake.coordinates(cell) == (row, column) or len(walked) == 5


def test_steps_name_nearer_holes():
    environment = make(FrozenLakeSettings(slip=0.0))
    environment._lake, environment._cell = LakeMap(4, frozenset({1, 6}), start=0, goal=10), 5
    think = steps.demonstrate(environment, 1.0, random.Random(0)).think
    assert think == "G down right go 2 2 by Right 1 2 O Down 2 1 Right 2 2"


def test_steps_need_firm_ice():
    environment = make(FrozenLakeSettings(slip=0.5))
    environment.reset(seed=0)
    with pytest.raises(ConfigError, match=r"set environment\.slip = 0\.0, not 0\.5"):
        steps.demonstrate(environment, 1.0, random.Random(0))


def test_skilled_player_reaches_goal_without_slip():
    assert success(1.0, slip=0.0) == 1.0


def test_unskilled_demonstration_mediocre_on_lakes():
    assert 0.12 < success(0.0, slip=0.0, min_distance=4) < 0.22


def test_skill_helps_on_slippery_ice():
    assert success(1.0, slip=2 / 3, num_episodes=300) > success(0.0, slip=2 / 3, num_episodes=300) + 0.1
