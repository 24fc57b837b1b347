"""Demonstrator for Sokoban that reads the board and walks about; whether and where to push is left to the reward.

Of rooms of one to five moves `demonstrations`, without skill, solves half: a push at random is often right. This one
solves a quarter.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.sokoban.demonstrations import MAX_ACTIONS, cells_walked, describe
from starpo.ragen.envs.sokoban.demonstrations import demonstrate as push
from starpo.ragen.envs.sokoban.environment import Sokoban
from starpo.ragen.envs.sokoban.solver import feasible_pushes, walks


def demonstrate(environment: Sokoban, skill: float, rng: random.Random) -> Demonstration:
    """Choose a walk or a push, and make it. The environment is not stepped.

    The reasoning of a walk is like `X down left O up go 3 4 2 4`: the direction from the player to the nearest box, the
    direction from the box to its target, and the cells of the walk (row and column), the last one first. That of a push
    is as in `demonstrations`.

    Args:
        environment: Environment in the position to decide in, which must not be solved.
        skill: Probability of the first push of a shortest solution; otherwise one is drawn uniformly from the feasible
            pushes and a shortest walk to every cell in reach.
        rng: The only source of randomness.

    Returns:
        Up to the first five actions.
    """
    board = environment.board
    ways = [walk for walk in walks(board).values() if walk]
    if rng.random() < skill:
        return push(environment, 1.0, rng)
    number = rng.randrange(len(ways) + len(feasible_pushes(board)) or 1)
    if number >= len(ways):
        return push(environment, 0.0, rng)
    return Demonstration(f"{describe(environment)} go {cells_walked(board, ways[number])}", ways[number][:MAX_ACTIONS])
