"""2048: moves by hand, merges, new tiles, rewards, ends, and observations."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.game_2048.board import ACTIONS, free_cells, moves, slide
from starpo.ragen.envs.game_2048.environment import Game2048, Game2048Settings

SEEDS = st.integers(0, 2**63 - 1)
TILES = st.sampled_from([0, 0, 2, 4, 8, 16])
BOARDS = st.lists(st.tuples(TILES, TILES, TILES, TILES), min_size=4, max_size=4).map(tuple)
STUCK = ((2, 4, 2, 4), (4, 2, 4, 2), (2, 4, 2, 4), (4, 2, 4, 2))


def start(seed=0, dynamics_seed=0, **settings):
    environment = Game2048(Game2048Settings(**settings))
    environment.reset(seed=seed, dynamics_seed=dynamics_seed)
    return environment


def put(board, dynamics_seed=0, **settings):
    """Environment on a given board."""
    environment = start(dynamics_seed=dynamics_seed, **settings)
    environment._board = board
    return environment


def row_of(*tiles):
    """Board with these tiles in the first row and empty otherwise."""
    return (tiles, *[(0, 0, 0, 0)] * 3)


def sum_of(board):
    return sum(map(sum, board))


@pytest.mark.parametrize(
    ("before", "after", "made"),
    [
        ((2, 2, 0, 0), (4, 0, 0, 0), (4,)),
        ((2, 0, 0, 2), (4, 0, 0, 0), (4,)),
        ((2, 2, 2, 2), (4, 4, 0, 0), (4, 4)),  # a merged tile does not merge again
        ((4, 2, 2, 0), (4, 4, 0, 0), (4,)),
        ((2, 2, 2, 0), (4, 2, 0, 0), (4,)),  # the pair nearest to the left side merges
        ((0, 8, 0, 4), (8, 4, 0, 0), ()),
        ((2, 4, 8, 16), (2, 4, 8, 16), ()),
    ],
)
def test_slide_left_by_hand(before, after, made):
    assert slide(row_of(*before), "Left") == (row_of(*after), made)


def test_other_pushes_are_turned_ones():
    board = ((2, 2, 2, 0), (0, 4, 0, 0), (2, 4, 0, 8), (4, 0, 0, 8))
    assert slide(board, "Right") == (((0, 0, 2, 4), (0, 0, 0, 4), (0, 2, 4, 8), (0, 0, 4, 8)), (4,))
    assert slide(board, "Up") == (((4, 2, 2, 16), (4, 8, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)), (4, 8, 16))
    assert slide(board, "Down") == (((0, 0, 0, 0), (0, 0, 0, 0), (4, 2, 0, 0), (4, 8, 2, 16)), (4, 8, 16))


@given(board=BOARDS, action=st.sampled_from(ACTIONS))
def test_slide_keeps_sum_and_counts_merges(board, action):
    after, made = slide(board, action)
    assert sum_of(after) == sum_of(board)
    assert len(free_cells(after)) == len(free_cells(board)) + len(made)
    assert len(slide(board, {"Up": "Down", "Down": "Up", "Left": "Right", "Right": "Left"}[action])[1]) == len(made)


def test_push_that_moves_nothing_changes_nothing():
    environment = put(row_of(2, 4, 0, 0))
    state, chance = environment.state_digest(), environment._chance.getstate()
    _, reward, terminated, _, info = environment.step("Left")
    assert (reward, terminated, info["effective"], info["made"]) == (0.0, False, False, [])
    assert environment.state_digest() == state
    assert environment._chance.getstate() == chance


def test_reward_is_log_of_merged_tiles():
    environment = put(row_of(2, 2, 4, 4))
    _, reward, _, _, info = environment.step("Left")
    assert info["made"] == [4, 8]
    assert reward == pytest.approx(0.1 * math.log2(4 + 8 + 1))  # 0.37004
    assert put(row_of(2, 0, 0, 0)).step("Right")[1] == 0.0


def test_new_tiles_follow_their_distribution():
    appeared, cells = Counter(), Counter()
    for member in range(3000):
        environment = put(row_of(2, 0, 0, 0), dynamics_seed=member)
        environment.step("Right")
        ((cell, tile),) = (
            ((row, column), tile)
            for row, tiles in enumerate(environment.board)
            for column, tile in enumerate(tiles)
            if tile and (row, column) != (0, 3)
        )
        appeared[tile] += 1
        cells[cell] += 1
    # 300 fours expected, standard deviation sqrt(3000 * 0.1 * 0.9) = 16.4; 200 in each of 15 cells, with 13.7.
    assert set(appeared) == {2, 4}
    assert abs(appeared[4] - 300) < 66
    assert len(cells) == 15
    assert all(abs(count - 200) < 55 for count in cells.values())


@given(seed=SEEDS, member=SEEDS)
def test_group_starts_with_same_two_tiles(seed, member):
    environment = start(seed, member)
    tiles = [tile for row in environment.board for tile in row if tile]
    assert len(tiles) == 2
    assert set(tiles) <= {2, 4}
    assert environment.board == start(seed, member + 1).board


def test_the_game_ends_with_the_goal():
    environment = put(row_of(32, 32, 0, 0), goal=64)
    assert not environment.is_success
    _, _, terminated, truncated, info = environment.step("Left")
    assert (terminated, truncated, environment.is_success, info["largest"]) == (True, False, True, 64)
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("Right")


def test_game_ends_without_legal_moves():
    assert moves(STUCK) == ()
    environment = put(((2, 2, 4, 2), *STUCK[1:]))
    while not environment.is_over:
        environment.step(moves(environment.board)[0])
    assert not environment.is_success
    assert moves(environment.board) == ()
    with pytest.raises(EnvironmentFault, match="no move left"):
        environment.step("Left")


def test_both_observations():
    board = ((2, 0, 0, 128), (0, 0, 4, 0), (0, 0, 0, 0), (16, 8, 2, 2))
    assert put(board).render() == "  2   .   . 128\n  .   .   4   .\n  .   .   .   .\n 16   8   2   2"
    assert put(board, observation="compact").render() == "1 0 0 7\n0 0 2 0\n0 0 0 0\n4 3 1 1"


def test_impossible_goal_is_rejected():
    with pytest.raises(ValidationError, match="is not a power of two"):
        Game2048Settings(goal=100)
    with pytest.raises(ValidationError, match="131072"):
        Game2048Settings(goal=2**18)
