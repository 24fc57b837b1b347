"""Random solvable Sokoban rooms. All randomness comes from the given generator.

rng -> topology (random walk) -> target(s) -> start: played backwards, or looked up by distance -> Board
"""

import random
from collections.abc import Sequence

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.sokoban.board import Board, offsets
from starpo.ragen.envs.sokoban.solver import distance_table

_TURN_PROBABILITY = 0.35
_STEPS_PER_SIDE = 1.7
_STAMPS = (
    ((1, 0), (1, 1), (1, 2)),
    ((0, 1), (1, 1), (2, 1)),
    ((1, 0), (1, 1), (2, 1)),
    ((1, 0), (1, 1), (2, 0), (2, 1)),
    ((1, 1), (1, 2), (2, 1)),
)
"""Cells of a 3x3 square, centred on the walker, that a step may turn into floor."""
_MAX_EXPLORED = 300_000
_MAX_ATTEMPTS = 20_000


def reverse_play(rng: random.Random, height: int, width: int, num_boxes: int, search_depth: int) -> Board:
    """Make a room like gym-sokoban 0.0.6: the same random numbers give the same room.

    Boxes start on their targets; a depth-first search over pulls and steps looks for the position with the largest
    (pulls made) * (sum of the boxes' Manhattan distances from their targets) in which no target is covered.

    Args:
        rng: The only source of randomness.
        height: Number of rows, including walls.
        width: Number of columns, including walls.
        num_boxes: Number of boxes, and of targets.
        search_depth: Depth limit of the backward search in actions; gym-sokoban's is 300. A lower limit is faster and
            gives rooms with shorter solutions.

    Raises:
        ConfigError: If no room is found in 20,000 attempts, as such rooms are too rare.
    """
    for _ in range(_MAX_ATTEMPTS):
        cells = topology(rng, height, width)
        if len(cells) <= num_boxes + 1:
            continue
        free = list(cells)
        player = free.pop(rng.randrange(len(free)))
        targets = [free.pop(rng.randrange(len(free))) for _ in range(num_boxes)]
        start = _farthest_start(width, frozenset(cells), sorted(targets), player, search_depth)
        if start is not None:
            player, boxes = start
            return Board(height, width, frozenset(cells), frozenset(targets), frozenset(boxes), player)
    raise ConfigError(
        f"no {height}x{width} Sokoban room with {num_boxes} boxes was found in {_MAX_ATTEMPTS} attempts at "
        f"search_depth = {search_depth}; set height and width larger, num_boxes smaller, or search_depth larger"
    )


def at_distance(rng: random.Random, height: int, width: int, min_solution: int, max_solution: int) -> Board:
    """Make a room with one box whose shortest solution has a length drawn uniformly from a range.

    The length is drawn once and rooms are made until one has it. Redrawing it for each room would favour short
    solutions, which more rooms have.

    Args:
        rng: The only source of randomness.
        height: Number of rows, including walls.
        width: Number of columns, including walls.
        min_solution: Minimum length of the shortest solution, in actions.
        max_solution: Maximum length of the shortest solution, in actions.

    Raises:
        ConfigError: If no room is found in 20,000 attempts.
    """
    length = rng.randint(min_solution, max_solution)
    for _ in range(_MAX_ATTEMPTS):
        cells = topology(rng, height, width)
        floor = frozenset(cells)
        target = rng.choice(cells)
        table = distance_table(width, floor, target, max_distance=length)
        starts = [position for position, distance in table.items() if distance == length]
        if starts:
            player, box = rng.choice(starts)
            return Board(height, width, floor, frozenset([target]), frozenset([box]), player)
    raise ConfigError(
        f"no {height}x{width} Sokoban room whose shortest solution has {length} actions was found in {_MAX_ATTEMPTS} "
        "attempts; set max_solution smaller, or height and width larger"
    )


def topology(rng: random.Random, height: int, width: int) -> list[int]:
    """Carve floor out of rock by a random walk, as gym-sokoban does.

    Returns:
        Floor cells in ascending order; never empty, never on the border.
    """
    directions = ((1, 0), (0, 1), (-1, 0), (0, -1))
    down, right = rng.choice(directions)
    row, col = rng.randint(1, height - 1), rng.randint(1, width - 1)
    carved = set()
    for _ in range(int(_STEPS_PER_SIDE * (height + width))):
        if rng.random() < _TURN_PROBABILITY:
            down, right = rng.choice(directions)
        row = max(min(row + down, height - 2), 1)
        col = max(min(col + right, width - 2), 1)
        for i, j in rng.choice(_STAMPS):
            carved.add((row + i - 1, col + j - 1))
    return sorted(r * width + c for r, c in carved if 0 < r < height - 1 and 0 < c < width - 1)


def _farthest_start(
    width: int, floor: frozenset[int], targets: Sequence[int], player: int, search_depth: int
) -> tuple[int, tuple[int, ...]] | None:
    """Search backwards from the solved position.

    Returns:
        The cells of the player and of the boxes (in the order of their targets); None if no position scores above 0.
    """
    directions = tuple(offsets(width).values())
    target_set = frozenset(targets)
    homes = tuple(divmod(target, width) for target in targets)
    best_score, best = 0, None
    explored: set[tuple[int, frozenset[int], frozenset[int]]] = set()
    # Boxes that were never pulled are distinguished from those that returned to a target, as in gym-sokoban.
    stack = [(player, tuple(targets), frozenset[int](), 0, search_depth - 1)]
    while stack:
        player, boxes, pulled, num_pulls, depth_left = stack.pop()
        key = (player, frozenset(boxes), pulled)
        if depth_left <= 0 or len(explored) >= _MAX_EXPLORED or key in explored:
            continue
        explored.add(key)
        if player not in target_set and target_set.isdisjoint(boxes):
            shift = sum(
                abs(box // width - row) + abs(box % width - col) for box, (row, col) in zip(boxes, homes, strict=True)
            )
            if num_pulls * shift > best_score:
                best_score, best = num_pulls * shift, (player, boxes)
        pulls, steps = [], []
        for offset in directions:
            ahead, behind = player + offset, player - offset
            if ahead not in floor or ahead in boxes:
                continue
            step = (ahead, boxes, pulled, num_pulls, depth_left - 1)
            if behind in boxes:
                moved = tuple(player if box == behind else box for box in boxes)
                pulls.append((ahead, moved, pulled - {behind} | {player}, num_pulls + 1, depth_left - 1))
                steps.append(step)
            else:
                pulls.append(step)  # a pull with nothing to pull is a step
        stack.extend(reversed(pulls + steps))
    return best
