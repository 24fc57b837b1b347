"""2048's demonstrator: what it says of a board, and how well it plays."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.envs import make
from starpo.ragen.envs.game_2048.board import largest, moves, slide
from starpo.ragen.envs.game_2048.demonstrations import demonstrate
from starpo.ragen.envs.game_2048.environment import Game2048Settings

SEEDS = st.integers(0, 2**63 - 1)


def success(skill, num_games, num_actions=48):
    """Share of games in which the demonstrator makes 64 within `num_actions` actions."""
    environment = make(Game2048Settings(goal=64))
    successes = 0
    for seed in range(num_games):
        environment.reset(seed=seed, dynamics_seed=seed)
        actions_left, rng = num_actions, random.Random(seed)
        while actions_left > 0 and not environment.is_over:
            for action in demonstrate(environment, skill, rng).actions:
                actions_left -= 1
                if environment.step(action)[2]:
                    break
        successes += environment.is_success
    return successes / num_games


@given(seed=SEEDS, skill=st.floats(0, 1), num_before=st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_the_thought_is_true_and_the_first_push_moves_something(seed, skill, num_before):
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


def test_skill_wins_more_often():
    unskilled, skilled = (success(skill, 80) for skill in (0.0, 1.0))
    assert 0.25 < unskilled < 0.5
    assert skilled > unskilled + 0.15
