"""2048 as a mediocre player plays it: sees which pushes move and merge something, and often pushes anywhere.

The noise lies in decisions (where to push), never in what is said about the board: a policy that imitates it learns to
see pairs, and is left with keeping the large tiles in a corner to learn by reward.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.game_2048.board import Board, largest, moves, slide
from starpo.ragen.envs.game_2048.environment import Game2048

MAX_ACTIONS = 4
"""A turn has room for four pushes; only the first is decided with all tiles in sight."""
_CORNER_FIRST = ("Up", "Left", "Right", "Down")
"""Of pushes that merge alike, the one that leaves the large tiles in the upper left corner."""


def demonstrate(environment: Game2048, skill: float, rng: random.Random) -> Demonstration:
    """Push up to four times. The environment is not stepped.

    The thought is like `largest 4 rows 1 columns 0 free Up Left`: the exponent of the largest tile, how many pairs
    merge in a push along the rows and along the columns, and which pushes move anything.

    Args:
        environment: In the position to decide in, in which a move is possible.
        skill: Probability that the pushes merge as much as they can and otherwise keep to a corner, as if no tile
            appeared between them. Otherwise each is drawn uniformly from those that would then move something.
        rng: The only source of chance.
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
    """The push that makes the largest tiles; of equals the first of `_CORNER_FIRST`."""
    possible = [action for action in _CORNER_FIRST if action in moves(board)]
    return max(possible, key=lambda action: sum(slide(board, action)[1]))
