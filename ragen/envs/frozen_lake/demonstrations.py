"""Mediocre demonstrator for FrozenLake that knows the lake and its paths, and chooses its destination badly.

As in the other demonstrators, the noise is in the decisions (which cell to walk to), never in single actions or in the
statements about the lake. A policy that imitates it learns to read the lake and to walk; the choice of the destination
is left for the reward to teach.
"""

import random
from collections import deque

from starpo.ragen.envs.cells import direction
from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.frozen_lake.environment import FrozenLake
from starpo.ragen.envs.frozen_lake.map import ACTIONS, LakeMap

MAX_ACTIONS = 5
"""Actions per turn (RAGEN, training settings)."""
MAX_ACTIONS_SLIPPERY = 2
"""Actions per turn on slippery ice, after which the player observes again: ten actions over five turns."""


def demonstrate(environment: FrozenLake, skill: float, rng: random.Random) -> Demonstration:
    """Choose a cell and walk there. The environment is not stepped.

    The reasoning is like `G down right go 2 3 from 1 3 1 2`: the direction from the player to the goal, the chosen cell
    (row and column), and the earlier cells of the walk, the last one first. Each cell is adjacent to the one before, so
    that the path is found step by step and then read off backwards.

    Args:
        environment: Environment in the position to decide in, with the player not in a hole or at the goal.
        skill: Probability that the walk is the solver's. Otherwise the cell is drawn uniformly from all reachable ones,
            including holes and the goal, and the path is a shortest one.
        rng: The only source of randomness.

    Returns:
        Up to the first five actions of the walk; up to two if the ice is slippery.
    """
    assert not environment.is_over, "the walk has ended: there is nothing to decide"
    lake, cell, slip = environment.lake, environment.cell, environment.settings.slip
    limit = MAX_ACTIONS_SLIPPERY if slip > 0.0 else MAX_ACTIONS
    if rng.random() < skill:
        from starpo.ragen.envs.frozen_lake.solver import best_plan

        length = limit if slip > 0.0 else lake.num_cells
        walk = best_plan(lake, cell, slip, length, actions_left=lake.num_cells)  # no shortest path is longer
    else:
        walk = rng.choice(walks(lake, cell))
    cells = _cells_meant(lake, cell, walk)
    way = f" from {' '.join(reversed(cells[:-1]))}" if cells[:-1] else ""
    to_goal = direction(lake.coordinates(cell), lake.coordinates(lake.goal))
    return Demonstration(f"G {to_goal} go {cells[-1]}{way}", walk[: min(limit, len(cells))])


def walks(lake: LakeMap, start: int) -> list[tuple[str, ...]]:
    """Return a shortest path to every other reachable cell, nearest first; holes and the goal end a walk."""
    paths: dict[int, tuple[str, ...]] = {start: ()}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        for action in () if lake.is_end(cell) else ACTIONS:
            ahead = lake.move(cell, action)
            if ahead not in paths:
                paths[ahead] = (*paths[cell], action)
                queue.append(ahead)
    return [walk for walk in paths.values() if walk]


def _cells_meant(lake: LakeMap, cell: int, walk: tuple[str, ...]) -> list[str]:
    """Return row and column of every intended cell of the walk, in order, up to the first that would end it."""
    cells = []
    for action in walk:
        cell = lake.move(cell, action)
        row, column = lake.coordinates(cell)
        cells.append(f"{row} {column}")
        if lake.is_end(cell):
            break
    return cells
