"""FrozenLake as a mediocre player plays it: knows the lake and the ways over it, and decides badly where to go.

As in the other demonstrators the noise lies in decisions (which cell to walk to), never in key presses or in what is
said about the lake: a policy that imitates it learns to read the lake and to walk, and is left with the choice of where
to go to learn by reward.
"""

import random
from collections import deque

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.frozen_lake.environment import FrozenLake
from starpo.ragen.envs.frozen_lake.map import ACTIONS, LakeMap
from starpo.ragen.envs.frozen_lake.solver import best_plan

MAX_ACTIONS = 5
"""A turn has room for five actions (RAGEN, training settings)."""
MAX_ACTIONS_SLIPPERY = 2
"""On slippery ice the player looks again after two: ten actions over five turns."""


def demonstrate(environment: FrozenLake, skill: float, rng: random.Random) -> Demonstration:
    """Choose a cell and walk there. The environment is not stepped.

    The thought is like `G down right go 2 3 from 1 3 1 2`: where the goal lies from the player, the cell chosen (row
    and column), and the cells of the walk before it, the last one first: each is next to the one before, so the way is
    found step by step, and is read off backwards.

    Args:
        environment: In the position to decide in, which must not be in a hole or at the goal.
        skill: Probability that the walk is the solver's. Otherwise the cell is drawn uniformly from all that can be
            walked to, holes and the goal among them, and the way is a shortest one.
        rng: The only source of chance.

    Returns:
        The walk's first five actions, or fewer; at most two where the ice is slippery.
    """
    assert not environment.is_over, "the walk has ended: there is nothing to decide"
    lake, cell, slip = environment.lake, environment.cell, environment.settings.slip
    limit = MAX_ACTIONS_SLIPPERY if slip > 0.0 else MAX_ACTIONS
    if rng.random() < skill:
        length = limit if slip > 0.0 else lake.num_cells
        walk = best_plan(lake, cell, slip, length, actions_left=lake.num_cells)  # no shortest way is longer than that
    else:
        walk = rng.choice(_walks(lake, cell))
    cells = _cells_meant(lake, cell, walk)
    way = f" from {' '.join(reversed(cells[:-1]))}" if cells[:-1] else ""
    return Demonstration(f"G {_direction(lake, cell)} go {cells[-1]}{way}", walk[: min(limit, len(cells))])


def _walks(lake: LakeMap, start: int) -> list[tuple[str, ...]]:
    """A shortest way to every other cell that can be walked to; holes and the goal end a walk. Nearest first."""
    walks: dict[int, tuple[str, ...]] = {start: ()}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        for action in () if lake.is_end(cell) else ACTIONS:
            ahead = lake.move(cell, action)
            if ahead not in walks:
                walks[ahead] = (*walks[cell], action)
                queue.append(ahead)
    return [walk for walk in walks.values() if walk]


def _cells_meant(lake: LakeMap, cell: int, walk: tuple[str, ...]) -> list[str]:
    """Row and column of every cell that the walk is meant to step on, in order, up to the first that would end it."""
    cells = []
    for action in walk:
        cell = lake.move(cell, action)
        row, column = lake.coordinates(cell)
        cells.append(f"{row} {column}")
        if lake.is_end(cell):
            break
    return cells


def _direction(lake: LakeMap, cell: int) -> str:
    """Where the goal lies from a cell: such as 'down' or 'up left'."""
    (row, column), (goal_row, goal_column) = lake.coordinates(cell), lake.coordinates(lake.goal)
    words = []
    if goal_row != row:
        words.append("down" if goal_row > row else "up")
    if goal_column != column:
        words.append("right" if goal_column > column else "left")
    return " ".join(words)
