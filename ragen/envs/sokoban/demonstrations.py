"""Mediocre demonstrator for Sokoban that reads the board correctly, decides badly, and executes its decision correctly.

The noise is in the decisions (which push), never in single actions or in the statements about the board. A policy that
imitates it learns to read the board and to walk; the choice of pushes is left for the reward to teach.
"""

import itertools
import random

from starpo.ragen.envs.cells import direction
from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.sokoban.board import ACTIONS, Board, offsets
from starpo.ragen.envs.sokoban.environment import Sokoban
from starpo.ragen.envs.sokoban.solver import Push, feasible_pushes, first_push, solve

MAX_ACTIONS = 5
"""Actions per turn (RAGEN, training settings); a longer walk continues in the next turn."""


def demonstrate(
    environment: Sokoban, skill: float, rng: random.Random, max_actions: int = MAX_ACTIONS
) -> Demonstration:
    """Choose a push, walk to it and make it. The environment is not stepped.

    The reasoning is like `X down left O up right push left from 3 4 2 4`: the direction from the player to the box, the
    direction from the box to the target, the push, and the cells of the walk (row and column), the last one first. Each
    cell is adjacent to the one before, so that the path is found step by step and then read off backwards. With several
    boxes it describes the pushed one (the nearest if none can be pushed) and the free target nearest to that; a box on
    a target is described with its own target.

    Args:
        environment: Environment in the position to decide in, which must not be solved.
        skill: Probability that the push is the first of a shortest solution; otherwise it is drawn uniformly from the
            feasible ones, including the solver's. In a lost position it is always drawn uniformly.
        rng: The only source of randomness.
        max_actions: Maximum number of actions to return.

    Returns:
        One to `max_actions` actions; one random action if no push is feasible.
    """
    board = environment.board
    assert not board.is_solved, "there is nothing left to decide"
    push = _choose(board, skill, rng)
    facts = describe(environment, push.box if push else None)
    if push is None:
        return Demonstration(f"{facts} push none", (rng.choice(ACTIONS),), is_resigned=True)
    way = f" from {cells_walked(board, push.path[:-1])}" if push.path[:-1] else ""
    return Demonstration(f"{facts} push {push.action.lower()}{way}", push.path[:max_actions])


def describe(environment: Sokoban, box: int | None = None) -> str:
    """Say where a box lies from the player, and its target from the box. None: the nearest box."""
    board = environment.board
    box = _nearest(board, board.player, board.boxes) if box is None else box
    target = box if box in board.targets else _nearest(board, box, board.targets - board.boxes)
    places = [board.coordinates(cell) for cell in (board.player, box, target)]
    to_box, to_target = (direction(start, end) for start, end in itertools.pairwise(places))
    return f"{environment.symbols.box} {to_box} {environment.symbols.target} {to_target}"


def cells_walked(board: Board, walk: tuple[str, ...]) -> str:
    """Write row and column of every cell that a walk leads to, the last one first."""
    steps = offsets(board.width)
    cells = [*itertools.accumulate((steps[action] for action in walk), initial=board.player)][:0:-1]
    return " ".join("{} {}".format(*board.coordinates(cell)) for cell in cells)


def _choose(board: Board, skill: float, rng: random.Random) -> Push | None:
    pushes = feasible_pushes(board)
    if not pushes:
        return None
    if rng.random() < skill and (solution := solve(board)) is not None:
        return first_push(board, solution)
    return rng.choice(pushes)


def _nearest(board: Board, start: int, cells: frozenset[int]) -> int:
    """Return the cell at the smallest Manhattan distance; of several, the first."""
    row, col = board.coordinates(start)
    steps = {cell: abs(board.coordinates(cell)[0] - row) + abs(board.coordinates(cell)[1] - col) for cell in cells}
    return min(sorted(steps), key=steps.__getitem__)
