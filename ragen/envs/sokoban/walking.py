"""Demonstrator for Sokoban that reads the board and mostly walks about; when to push is left to the reward.

Of rooms of one to five moves `demonstrations`, without skill, solves half: a push at random is often right.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.sokoban.demonstrations import MAX_ACTIONS, cells_walked, describe
from starpo.ragen.envs.sokoban.demonstrations import demonstrate as push
from starpo.ragen.envs.sokoban.environment import Sokoban
from starpo.ragen.envs.sokoban.solver import walks


def demonstrate(environment: Sokoban, skill: float, rng: random.Random) -> Demonstration:
    """Choose a walk or a push, and make it. The environment is not stepped.

    The reasoning of a walk is like `X down left O up go 3 4 2 4`: the direction from the player to the nearest box, the
    direction from the box to its target, and the cells of the walk (row and column), the last one first. That of a push
    is as in `demonstrations`.

    Args:
        environment: Environment in the position to decide in, which must not be solved.
        skill: Probability of the first push of a shortest solution; otherwise a shortest walk to a cell drawn uniformly
            from those in reach, and a random push where there are none.
        rng: The only source of randomness.

    Returns:
        Up to the first five actions.
    """
    ways = [way for way in walks(environment.board).values() if way]
    if rng.random() < skill:
        return push(environment, 1.0, rng)
    if not ways:
        return push(environment, 0.0, rng)
    way = rng.choice(ways)
    return Demonstration(f"{describe(environment)} go {cells_walked(environment.board, way)}", way[:MAX_ACTIONS])
