"""The 2 x 2 cube environment and its demonstrator."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.rubik.cube import SOLVED, num_whole_faces, turned
from starpo.ragen.envs.rubik.demonstrations import CONSIDERED, demonstrate
from starpo.ragen.envs.rubik.environment import RubikSettings
from starpo.ragen.envs.rubik.solver import solve

SEEDS = st.integers(0, 2**63 - 1)


def start(seed=0, **kwargs):
    environment = make(RubikSettings(**kwargs))
    environment.reset(seed=seed)
    return environment


def success(skill, scramble, num_episodes=200, num_turns=6):
    """Share of episodes in which the demonstrator solves the cube within `num_turns` turns."""
    environment = make(RubikSettings(scramble=scramble))
    successes = 0
    for seed in range(num_episodes):
        environment.reset(seed=seed)
        rng = random.Random(seed)
        for _ in range(num_turns):
            if not environment.is_success:
                environment.step(demonstrate(environment, skill, rng).actions[0])
        successes += environment.is_success
    return successes / num_episodes


@given(seed=SEEDS, scramble=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_solution_pays_one_at_end(seed, scramble):
    environment = start(seed, scramble=scramble)
    steps = [environment.step(action) for action in solve(environment.cube)]
    assert [reward for _, reward, *_ in steps] == [0.0] * (scramble - 1) + [1.0]
    assert [terminated for _, _, terminated, *_ in steps] == [False] * (scramble - 1) + [True]
    assert environment.is_success
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("U")


def test_number_of_cubes_as_configured():
    assert len({start(seed, scramble=1).state_digest() for seed in range(2000)}) == 144  # 6 times 24


def test_both_observations():
    environment = start()
    environment._cube = turned(SOLVED, "R")
    assert environment.render() == "   WG\n   WG\nOO GY RR WB\nOO GY RR WB\n   YB\n   YB"
    environment = start(observation="faces")
    environment._cube = turned(SOLVED, "R")
    assert environment.render().splitlines() == [
        "Up W G W G",
        "Left O O O O",
        "Front G Y G Y",
        "Right R R R R",
        "Back W B W B",
        "Down Y B Y B",
    ]


@given(seed=SEEDS, skill=st.floats(0, 1), scramble=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_thought_counts_whole_faces_per_turn(seed, skill, scramble):
    environment = start(seed, scramble=scramble)
    before = environment.state_digest()
    demonstration = demonstrate(environment, skill, random.Random(seed))
    assert environment.state_digest() == before
    words = demonstration.think.split()
    assert tuple(words[::2]) == CONSIDERED
    assert [int(count) for count in words[1::2]] == [num_whole_faces(turned(environment.cube, t)) for t in CONSIDERED]
    assert demonstration.actions[0] in CONSIDERED
    if scramble == 1:  # a solving turn is always among them, as one of each pair of equal turns is considered
        assert "6" in words


def test_success_follows_skill():
    assert success(1.0, scramble=2, num_episodes=40) == 1.0
    assert 0.02 < success(0.0, scramble=2) < 0.12
    assert success(0.0, scramble=2) < success(0.0, scramble=1)
