"""Demonstrator for FrozenLake without slip that reasons step by step, as a language model can follow.

A model of 135M parameters hardly learns to find a walk from its end, nor to see holes in the rows of a map. It learns
this in 200 steps of fine-tuning (docs/log.md).
"""

import random

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.cells import direction
from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.frozen_lake.demonstrations import MAX_ACTIONS, walks
from starpo.ragen.envs.frozen_lake.environment import FrozenLake
from starpo.ragen.envs.frozen_lake.map import ACTIONS, LakeMap
from starpo.ragen.envs.frozen_lake.solver import best_plan


def demonstrate(environment: FrozenLake, skill: float, rng: random.Random) -> Demonstration:
    """Choose a cell that is no hole, and walk there on a shortest path. The environment is not stepped.

    The reasoning is like `G down right go 2 1 by Down 1 0 O Right 0 1 Down 1 1 Down 2 1`: the direction from the player
    to the goal, the chosen cell (row and column), then every move with the cell that it leads to. Before it stands each
    move that would come nearer to the chosen cell but into a hole, with an `O` after its cell.

    Args:
        environment: Environment in the position to decide in, with the player not in a hole or at the goal.
        skill: Probability that the chosen cell is the goal. Otherwise it is drawn uniformly from all reachable ones.
        rng: The only source of randomness.

    Returns:
        Up to the first five actions of the walk.

    Raises:
        ConfigError: If the ice slips: no walk is then sure to avoid the holes.
    """
    lake, cell, slip = environment.lake, environment.cell, environment.settings.slip
    if slip > 0.0:
        raise ConfigError(f"{__name__} walks over ice that does not slip: set environment.slip = 0.0, not {slip:g}")
    if rng.random() < skill:
        walk = best_plan(lake, cell, slip, lake.num_cells, actions_left=lake.num_cells)
    else:
        walk = rng.choice([walk for walk in walks(lake, cell) if _end(lake, cell, walk) not in lake.holes])
    end, actions, steps = _end(lake, cell, walk), walk[:MAX_ACTIONS], []
    to_goal = direction(lake.coordinates(cell), lake.coordinates(lake.goal))
    for action in actions:
        steps += [f"{_step(lake, cell, nearer)} O" for nearer in ACTIONS if _leads_into_hole(lake, cell, nearer, end)]
        steps.append(_step(lake, cell, action))
        cell = lake.move(cell, action)
    row, column = lake.coordinates(end)
    return Demonstration(f"G {to_goal} go {row} {column} by {' '.join(steps)}", actions)


def _end(lake: LakeMap, cell: int, walk: tuple[str, ...]) -> int:
    for action in walk:
        cell = lake.move(cell, action)
    return cell


def _step(lake: LakeMap, cell: int, action: str) -> str:
    row, column = lake.coordinates(lake.move(cell, action))
    return f"{action} {row} {column}"


def _leads_into_hole(lake: LakeMap, cell: int, action: str, end: int) -> bool:
    """Return whether the action comes nearer to the end, counted over all cells, but into a hole."""
    ahead = lake.move(cell, action)
    return ahead in lake.holes and _distance(lake, ahead, end) < _distance(lake, cell, end)


def _distance(lake: LakeMap, cell: int, end: int) -> int:
    (row, column), (end_row, end_column) = lake.coordinates(cell), lake.coordinates(end)
    return abs(row - end_row) + abs(column - end_column)
