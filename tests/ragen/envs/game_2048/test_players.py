"""2048's expectimax player and demonstrator: which moves they prefer, and how well they play."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.envs import make
from starpo.ragen.envs.game_2048.board import largest, moves, slide
from starpo.ragen.envs.game_2048.demonstrations import demonstrate
from starpo.ragen.envs.game_2048.environment import Game2048Settings
from tests.ragen.envs.game_2048.solver import best_action, worth

SEEDS = st.integers(0, 2**63 - 1)
ROW = (0, 0, 0, 0)


def success(player, num_games, num_actions=48):
    """Share of games in which a player makes 64 within `num_actions` actions."""
    environment = make(Game2048Settings(goal=64))
    successes = 0
    for seed in range(num_games):
        environment.reset(seed=seed, dynamics_seed=seed)
        actions_left, rng = num_actions, random.Random(seed)
        while actions_left > 0 and not environment.is_over:
            for action in player(environment, rng):
                actions_left -= 1
                if environment.step(action)[2]:
                    break
        successes += environment.is_success
    return successes / num_games


def test_worth_by_hand():
    # The snake goes right in row 0 and back in row 1: 8, 4, 0, 0, then 0, 0, 0, 2; the 2 is in the eighth place.
    assert worth(((8, 4, 0, 0), (2, 0, 0, 0), ROW, ROW)) == 8 + 4 / 2 + 2 / 2**7


def test_one_step_search_picks_best_value():
    board = ((8, 8, 0, 0), (0, 0, 0, 0), ROW, ROW)
    values = {action: worth(slide(board, action)[0]) for action in moves(board)}
    assert values == {"Down": 16 * 0 + 8 / 2**14 + 8 / 2**15, "Left": 16.0, "Right": 16 / 2**3}
    assert best_action(board, 1) == "Left"


@given(seed=SEEDS, skill=st.floats(0, 1), num_before=st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_reasoning_is_true_and_action_legal(seed, skill, num_before):
    environment = make(Game2048Settings(goal=64))
    environment.reset(seed=seed, dynamics_seed=seed)
    rng = random.Random(seed)
    for _ in range(num_before):
        environment.step(rng.choice(moves(environment.board)))
    before = environment.state_digest()
    demonstration = demonstrate(environment, skill, rng)
    assert environment.state_digest() == before
    board = environment.board
    words = demonstration.think.split()
    assert words[0::2][:3] == ["largest", "rows", "columns"]
    assert 2 ** int(words[1]) == largest(board)
    assert [int(words[3]), int(words[5])] == [len(slide(board, action)[1]) for action in ("Right", "Down")]
    assert words[6:] == ["free", *moves(board)]
    assert demonstration.actions[0] in moves(board)
    assert 1 <= len(demonstration.actions) <= 4


@pytest.mark.ci
def test_who_looks_ahead_wins_more_often():
    anywhere = success(lambda environment, rng: demonstrate(environment, 0.0, rng).actions, 80)
    greedy = success(lambda environment, rng: demonstrate(environment, 1.0, rng).actions, 80)
    ahead = success(lambda environment, rng: [best_action(environment.board, 1)], 80)
    assert 0.25 < anywhere < 0.5
    assert min(greedy, ahead) > anywhere + 0.15
