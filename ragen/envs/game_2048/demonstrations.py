"""Mediocre demonstrator for 2048 that sees which moves shift and merge tiles, but often moves at random.

The noise is in the decisions (where to push), never in the statements about the board. A policy that imitates it learns
to see pairs; keeping the large tiles in a corner is left for the reward to teach.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.game_2048.board import Board, largest, moves, slide
from starpo.ragen.envs.game_2048.environment import Game2048

MAX_ACTIONS = 4
"""Pushes per turn; only the first is decided with all tiles in view."""
_CORNER_FIRST = ("Up", "Left", "Right", "Down")
"""Tie-breaking order among pushes that merge equally: keeps the large tiles in the upper left corner."""


def demonstrate(environment: Game2048, skill: float, rng: random.Random) -> Demonstration:
    """Push up to four times. The environment is not stepped.

    The reasoning is like `largest 4 rows 1 columns 0 free Up Left`: the exponent of the largest tile, the numbers of
    pairs that merge in a push along the rows and along the columns, and the possible pushes.

    Args:
        environment: Environment in the position to decide in, in which a move is possible.
        skill: Probability that each push merges as much as possible, with ties broken towards a corner, as if no tile
            appeared in between. Otherwise each is drawn uniformly from the then possible pushes.
        rng: The only source of randomness.
    """
    assert not environment.is_over, "the game has ended: there is nothing to decide"
    board = environment.board
    is_skilled = rng.random() < skill
    pushes: list[str] = []
    expected: Board = board
    while len(pushes) < MAX_ACTIONS and (possible := moves(expected)):
        push = _greedy(expected) if is_skilled else rng.choice(possible)
        expected, _ = slide(expected, push)
        pushes.append(push)
    rows, columns = (len(slide(board, action)[1]) for action in ("Left", "Up"))
    facts = f"largest {largest(board).bit_length() - 1} rows {rows} columns {columns} free {' '.join(moves(board))}"
    return Demonstration(facts, tuple(pushes))


def _greedy(board: Board) -> str:
    """Return the push with the largest sum of created tiles; ties go to the first of `_CORNER_FIRST`."""
    possible = [action for action in _CORNER_FIRST if action in moves(board)]
    return max(possible, key=lambda action: sum(slide(board, action)[1]))
