"""FrozenLake: agreement with Gymnasium, maps, observations, solver, and faults of the reference implementation."""

import random

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.frozen_lake.environment import FrozenLake, FrozenLakeSettings
from starpo.ragen.envs.frozen_lake.map import ACTIONS, LakeMap, draw_map
from starpo.ragen.envs.frozen_lake.solver import best_plan, success_probabilities, transition_probabilities

SEEDS = st.integers(0, 2**63 - 1)
SLIPS = (0.0, 0.2, 2 / 3, 1.0)


def start(seed=0, dynamics_seed=0, **kwargs):
    environment = FrozenLake(FrozenLakeSettings(**kwargs))
    environment.reset(seed=seed, dynamics_seed=dynamics_seed)
    return environment


def lake_of(*rows):
    cells = "".join(rows)
    holes = frozenset(i for i, cell in enumerate(cells) if cell == "H")
    return LakeMap(len(rows), holes, start=cells.index("S"), goal=cells.index("G"))


def gymnasium_lake(lake, slip):
    letters = {lake.start: "S", lake.goal: "G"} | dict.fromkeys(lake.holes, "H")
    cells = "".join(letters.get(cell, "F") for cell in range(lake.num_cells))
    rows = [cells[top : top + lake.size] for top in range(0, lake.num_cells, lake.size)]
    return gymnasium.make("FrozenLake-v1", desc=rows, is_slippery=slip > 0.0, success_rate=1.0 - slip).unwrapped


def put(lake, cell, slip=0.0, dynamics_seed=0):
    """Environment on a given lake, with the player on a given cell."""
    environment = start(dynamics_seed=dynamics_seed, size=lake.size, slip=slip)
    environment._lake, environment._cell = lake, cell
    return environment


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("size", [2, 4, 5])
def test_transitions_are_gymnasiums(slip, size):
    for seed in range(10):
        lake = start(seed, size=size).lake
        theirs = np.zeros((len(ACTIONS), lake.num_cells, lake.num_cells))
        for cell, by_action in gymnasium_lake(lake, slip).P.items():
            for action, outcomes in by_action.items():
                for probability, reached, _, _ in outcomes:
                    theirs[action, cell, reached] += probability
        np.testing.assert_allclose(transition_probabilities(lake, slip), theirs, atol=1e-12)


def test_rewards_and_ends_are_gymnasiums():
    for seed in range(20):
        lake = start(seed).lake
        for cell, by_action in gymnasium_lake(lake, 0.0).P.items():
            if lake.is_end(cell):
                continue
            for action, ((_, reached, reward, terminated),) in by_action.items():
                environment = put(lake, cell)
                _, our_reward, our_terminated, truncated, info = environment.step(ACTIONS[action])
                assert (environment.cell, our_reward, our_terminated, truncated) == (reached, reward, terminated, False)
                assert environment.is_success == (reward == 1)
                assert info["effective"] == (reached != cell)


@given(
    seed=SEEDS, size=st.integers(2, 8), min_distance=st.integers(1, 3), placement=st.sampled_from(["random", "corners"])
)
@settings(max_examples=60, deadline=None)
def test_goal_is_always_reachable(seed, size, min_distance, placement):
    min_distance = min(min_distance, 2 * (size - 1))  # no shortest path of a 2 x 2 lake is longer than 2
    lake = draw_map(size, 0.8, placement, min_distance, random.Random(seed))
    assert not {lake.start, lake.goal} & lake.holes
    distance = lake.distances()[lake.start]
    path = best_plan(lake, lake.start, 0.0, num_actions=distance, actions_left=distance)
    assert len(path) == distance >= min_distance
    environment = put(lake, lake.start)
    ends = [environment.step(action)[2] for action in path]
    assert ends == [False] * (len(path) - 1) + [True]
    assert environment.is_success
    if placement == "corners":
        assert (lake.start, lake.goal) == (0, size * size - 1)


def test_the_symbols_of_the_grid():
    lake = lake_of("SFFF", "FHFH", "FFFH", "HFFG")
    assert put(lake, 0).render() == "P___\n_O_O\n___O\nO__G"
    assert put(lake, 5).render() == "____\n_X_O\n___O\nO__G"
    assert put(lake, 15).render() == "____\n_O_O\n___O\nO__√"


def test_coordinates_zero_based_below_grid():
    lake = lake_of("SF", "HG")
    environment = put(lake, 1)
    environment.settings = FrozenLakeSettings(size=2, observation="coord")
    assert environment.render() == "_P\nOG\nPlayer: (0, 1)\nGoal: (1, 1)\nHoles: (1, 0)"


def test_compact_observation_is_line_and_map():
    lake = lake_of("SFFF", "FHFH", "FFFH", "HFFG")
    environment = put(lake, 4)
    environment.settings = FrozenLakeSettings(observation="compact")
    assert environment.render() == "P 1 0 G 3 3\n____\n_O_O\n___O\nO___"


@pytest.mark.parametrize("observation", ["grid", "coord", "compact"])
@given(seeds=st.lists(SEEDS, min_size=2, max_size=2, unique=True))
@settings(max_examples=30)
def test_equal_observations_are_equal_states(observation, seeds):
    one, other = (start(seed, observation=observation) for seed in seeds)
    assert (one.render() == other.render()) == (one.state_digest() == other.state_digest())


def test_rules_state_configured_slip():
    assert "0.33" in start(slip=2 / 3).rules()
    assert "0.80" in start(slip=0.2).rules()
    assert "not slippery" in start(slip=0.0).rules()


def test_values_by_hand():
    # Cells 0 1 / 2 3, goal 3, each of three directions with 1/3. In 1 action: cells 1 and 2 reach it with 1/3.
    # In 2: from 0, Down leads to 2, slips to 0 (Left) or 1 (Right): (1/3 + 0 + 1/3) / 3 = 2/9.
    #       from 1, Right stays (1/3), slips Down to the goal (1) or Up, which stays (1/3): (1/3 + 1 + 1/3) / 3 = 5/9.
    # In 3: from 0, Down: (V2(2) + V2(0) + V2(1)) / 3 = (5/9 + 2/9 + 5/9) / 3 = 4/9.
    lake = lake_of("SF", "FG")
    expected = [[0, 0, 0, 1], [0, 1 / 3, 1 / 3, 1], [2 / 9, 5 / 9, 5 / 9, 1]]
    values = success_probabilities(lake, transition_probabilities(lake, 2 / 3), 3)
    np.testing.assert_allclose(values[:3], expected, atol=1e-12)
    assert values[3, 0] == pytest.approx(4 / 9)
    assert len(best_plan(lake, 0, 2 / 3, num_actions=5, actions_left=3)) == 3
    assert best_plan(lake, 1, 2 / 3, 1, 2) == ("Right",)  # towards the wall: Down would be (1 + 0 + 1/3) / 3 = 4/9
    assert best_plan(lake, 1, 2 / 3, 1, 1) != ("Up",)  # the only action that cannot slip Down


@given(seed=SEEDS)
@settings(max_examples=50, deadline=None)
def test_goal_certain_at_distance_without_slip(seed):
    lake = start(seed).lake
    distance = lake.distances()[lake.start]
    values = success_probabilities(lake, transition_probabilities(lake, 0.0), 16)[:, lake.start]
    assert values.tolist() == [float(left >= distance) for left in range(17)]


@pytest.mark.ci
def test_best_player_reaches_success_bound():
    environment = start(11, slip=2 / 3)
    successes = 0
    for member in range(400):
        environment.reset(seed=11, dynamics_seed=member)
        for left in range(10, 0, -1):
            environment.step(*best_plan(environment.lake, environment.cell, 2 / 3, 1, left))
            if environment.is_over:
                break
        successes += environment.is_success
    lake = environment.lake
    bound = success_probabilities(lake, transition_probabilities(lake, 2 / 3), 10)[10, lake.start]
    assert 0.05 < bound < 0.95
    assert successes / 400 == pytest.approx(bound, abs=4 * np.sqrt(bound * (1 - bound) / 400))


def test_impossible_lake_is_one_error():
    with pytest.raises(EnvironmentFault, match="at least 5 moves; raise frozen_probability or lower min_distance"):
        draw_map(2, 0.8, "random", 5, random.Random(0))
