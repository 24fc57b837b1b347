"""FrozenLake as a mediocre player plays it: knows where the goal lies, seldom decides to go there.

As in the other demonstrators the noise lies in decisions (where to walk), never in key presses or in what is said
about the lake.
"""

import random

from ragen.envs.frozen_lake import FrozenLake
from ragen.envs.frozen_lake_map import ACTIONS, LakeMap
from ragen.envs.frozen_lake_solver import best_plan
from ragen.policy.demonstrations.base import Demonstration

MAX_ACTIONS = 5
"""A turn has room for five actions (PAPER section 3)."""
MAX_ACTIONS_SLIPPERY = 2
"""On slippery ice it looks again after two: ten actions over five turns."""
HORIZON = 10
"""Actions of an episode (PAPER section 3)."""


def demonstrate(environment: FrozenLake, skill: float, rng: random.Random) -> Demonstration:
    """Decide where to walk in one turn. The environment is not stepped.

    The thought is like `G down right go down`: where the goal lies from the player, and the first move.

    Args:
        environment: In the position to decide in, which must not be in a hole or at the goal.
        skill: Probability that the turn's plan is the solver's; otherwise it is a random walk past the holes, of
            random length.
        rng: The only source of chance.

    Returns:
        One to five actions, at most two where the ice is slippery.
    """
    assert not environment.is_over, "the walk has ended: there is nothing to decide"
    lake, cell, slip = environment.lake, environment.cell, environment.settings.slip
    limit = MAX_ACTIONS_SLIPPERY if slip > 0.0 else MAX_ACTIONS
    if rng.random() < skill:
        plan = best_plan(lake, cell, slip, limit, max(HORIZON, lake.num_cells))
    else:
        plan = _random_walk(lake, cell, rng.randint(1, limit), rng)
    return Demonstration(f"G {_direction(lake, cell)} go {plan[0].lower()}", plan)


def _random_walk(lake: LakeMap, cell: int, length: int, rng: random.Random) -> tuple[str, ...]:
    """Up to `length` moves to random neighbours that are not holes; it ends at the goal if it gets there."""
    walk: list[str] = []
    while len(walk) < length and cell != lake.goal:
        feasible = [action for action in ACTIONS if lake.move(cell, action) not in {cell} | lake.holes]
        walk.append(rng.choice(feasible))
        cell = lake.move(cell, walk[-1])
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
