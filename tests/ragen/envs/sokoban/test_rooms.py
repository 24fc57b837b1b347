import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.sokoban.rooms import at_distance, reverse_play, topology
from starpo.ragen.envs.sokoban.solver import solve


@given(seed=st.integers(0, 10_000), height=st.integers(5, 10), width=st.integers(5, 10))
def test_topology_leaves_a_border_of_wall(seed, height, width):
    cells = topology(python_random(seed), height, width)
    assert cells
    assert cells == sorted(set(cells))
    assert all(0 < cell // width < height - 1 and 0 < cell % width < width - 1 for cell in cells)


@given(seed=st.integers(0, 10_000), num_boxes=st.integers(1, 3))
def test_reverse_play_makes_solvable_rooms(seed, num_boxes):
    board = reverse_play(python_random(seed), 7, 7, num_boxes, search_depth=15)
    assert len(board.boxes) == len(board.targets) == num_boxes
    assert not board.boxes & board.targets
    assert board.player not in board.targets
    assert solve(board) is not None


@given(seed=st.integers(0, 10_000), bounds=st.tuples(st.integers(1, 12), st.integers(0, 3)))
def test_shortest_solution_within_requested_range(seed, bounds):
    low, high = bounds[0], bounds[0] + bounds[1]
    board = at_distance(python_random(seed), 6, 6, low, high)
    assert low <= len(solve(board)) <= high


def test_lengths_of_solutions_are_uniform():
    rng = random.Random(0)
    counts = Counter(len(solve(at_distance(rng, 6, 6, 3, 12))) for _ in range(2000))
    # 10 lengths, 200 expected for each, standard deviation sqrt(2000 * 0.1 * 0.9) = 13.4; four of them are 54.
    assert set(counts) == set(range(3, 13))
    assert all(abs(count - 200) <= 54 for count in counts.values())


def test_impossible_wishes_end_with_advice(monkeypatch):
    monkeypatch.setattr("starpo.ragen.envs.sokoban.rooms._MAX_ATTEMPTS", 20)
    with pytest.raises(ConfigError, match="has 90 actions was found in 20 attempts; set max_solution smaller"):
        at_distance(python_random(0), 5, 5, 90, 90)
    with pytest.raises(ConfigError, match="with 4 boxes was found in 20 attempts at search_depth = 3; set height"):
        reverse_play(python_random(0), 5, 5, 4, search_depth=3)
