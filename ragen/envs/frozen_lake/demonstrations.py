"""FrozenLake as a mediocre player plays it: knows where the goal lies, decides badly, and walks as it decided.

As in the other demonstrators the noise lies in decisions (which way to go), never in key presses or in what is said
about the lake: a policy that imitates it learns to read the lake and to walk, and is left with the choice of ways to
learn by reward.
"""

import random
from itertools import takewhile

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.frozen_lake.environment import FrozenLake
from starpo.ragen.envs.frozen_lake.map import ACTIONS, LakeMap
from starpo.ragen.envs.frozen_lake.solver import best_plan

MAX_ACTIONS = 5
"""A turn has room for five actions (RAGEN, training settings)."""
MAX_ACTIONS_SLIPPERY = 2
"""On slippery ice the player looks again after two: ten actions over five turns."""


def demonstrate(environment: FrozenLake, skill: float, rng: random.Random) -> Demonstration:
    """Choose a direction and walk straight on in it. The environment is not stepped.

    The thought is like `G down right go down`: where the goal lies from the player, and the direction chosen.

    Args:
        environment: In the position to decide in, which must not be in a hole or at the goal.
        skill: Probability that the direction and the length of the walk are the solver's. Otherwise the direction is
            drawn uniformly from those that stay on the lake, and the walk goes on to its edge or its first hole.
        rng: The only source of chance.

    Returns:
        One to five actions, all alike; at most two where the ice is slippery.
    """
    assert not environment.is_over, "the walk has ended: there is nothing to decide"
    lake, cell, slip = environment.lake, environment.cell, environment.settings.slip
    limit = MAX_ACTIONS_SLIPPERY if slip > 0.0 else MAX_ACTIONS
    if rng.random() < skill:
        plan = best_plan(lake, cell, slip, limit, actions_left=lake.num_cells)  # no shortest way is longer than that
        walk = tuple(takewhile(lambda action: action == plan[0], plan))
    else:
        walk = _straight_walk(lake, cell, limit, rng)
    return Demonstration(f"G {_direction(lake, cell)} go {walk[0].lower()}", walk)


def _straight_walk(lake: LakeMap, cell: int, limit: int, rng: random.Random) -> tuple[str, ...]:
    """One to `limit` moves in a random direction: up to the edge, the first hole (into it) or the goal."""
    action = rng.choice([action for action in ACTIONS if lake.move(cell, action) != cell])
    walk = [action]
    cell = lake.move(cell, action)
    while len(walk) < limit and not lake.is_end(cell) and lake.move(cell, action) != cell:
        walk.append(action)
        cell = lake.move(cell, action)
    return tuple(walk)


def _direction(lake: LakeMap, cell: int) -> str:
    """Where the goal lies from a cell: such as 'down' or 'up left'."""
    (row, column), (goal_row, goal_column) = lake.coordinates(cell), lake.coordinates(lake.goal)
    words = []
    if goal_row != row:
        words.append("down" if goal_row > row else "up")
    if goal_column != column:
        words.append("right" if goal_column > column else "left")
    return " ".join(words)
