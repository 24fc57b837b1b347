"""Lakes: cells, moves, slip probabilities, and random maps with a reachable goal.

Cells are numbered row by row from the top left corner, `cell = row * size + column`.
"""

import random
from collections import deque
from dataclasses import dataclass
from typing import Literal

from starpo.ragen.core.errors import EnvironmentFault

ACTIONS = ("Left", "Down", "Right", "Up")
"""In Gymnasium's order, in which neighbours are perpendicular: a step may slip to index +- 1."""

_STEPS = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}
_MAX_DRAWS = 10_000


@dataclass(frozen=True)
class LakeMap:
    """A square lake: its side length in cells, its holes, the start cell, and the goal cell."""

    size: int
    holes: frozenset[int]
    start: int
    goal: int

    @property
    def num_cells(self) -> int:
        """Number of cells of the lake."""
        return self.size * self.size

    def coordinates(self, cell: int) -> tuple[int, int]:
        """Return row and column of a cell, zero-based."""
        return divmod(cell, self.size)

    def is_end(self, cell: int) -> bool:
        """Whether the episode ends at this cell, a hole or the goal."""
        return cell in self.holes or cell == self.goal

    def move(self, cell: int, action: str) -> int:
        """Return the cell that one step without a slip leads to; at the edge the player stays."""
        row, column = self.coordinates(cell)
        down, right = _STEPS[action]
        to_row, to_column = row + down, column + right
        is_inside = 0 <= to_row < self.size and 0 <= to_column < self.size
        return to_row * self.size + to_column if is_inside else cell

    def outcomes(self, cell: int, action: str, slip: float) -> tuple[tuple[float, int], ...]:
        """Return the outcomes of one step with their probabilities, as in Gymnasium's FrozenLake-v1.

        Args:
            cell: Cell of the player; not terminal.
            action: The intended move.
            slip: Probability of slipping, half of it for each perpendicular direction.

        Returns:
            (probability, cell) of the intended move and of the two perpendicular ones. Cells may repeat.
        """
        index = ACTIONS.index(action)
        perpendiculars = (ACTIONS[index - 1], ACTIONS[(index + 1) % len(ACTIONS)])
        slips = tuple((slip / 2, self.move(cell, perpendicular)) for perpendicular in perpendiculars)
        return ((1.0 - slip, self.move(cell, action)), *slips)

    def distances(self) -> dict[int, int]:
        """Return, by cell, the minimum number of moves to the goal avoiding holes; omit cells that cannot reach it."""
        distances = {self.goal: 0}
        queue = deque([self.goal])
        while queue:
            cell = queue.popleft()
            for action in ACTIONS:  # moves are reversible, so distances from the goal equal distances to it
                neighbour = self.move(cell, action)
                if neighbour not in distances and neighbour not in self.holes:
                    distances[neighbour] = distances[cell] + 1
                    queue.append(neighbour)
        return distances


def draw_map(
    size: int,
    frozen_probability: float,
    placement: Literal["random", "corners"],
    min_distance: int,
    rng: random.Random,
) -> LakeMap:
    """Draw lakes, each cell frozen with `frozen_probability`, until one has a path to the goal of sufficient length.

    Args:
        size: Side length in cells, at least 2.
        frozen_probability: Probability that a cell is frozen rather than a hole, in (0, 1].
        placement: 'random': start and goal on two different frozen cells. 'corners': from the top left to the bottom
            right, which are then always frozen.
        min_distance: Minimum length of the shortest path, at least 1.
        rng: Advanced by as many draws as needed.

    Raises:
        EnvironmentFault: If none of 10,000 lakes qualifies.
    """
    for _ in range(_MAX_DRAWS):
        holes = {cell for cell in range(size * size) if rng.random() >= frozen_probability}
        if placement == "corners":
            start, goal = 0, size * size - 1
            holes -= {start, goal}
        else:
            frozen = [cell for cell in range(size * size) if cell not in holes]
            if len(frozen) < 2:
                continue
            start, goal = rng.sample(frozen, 2)
        lake = LakeMap(size, frozenset(holes), start, goal)
        if lake.distances().get(start, 0) >= min_distance:
            return lake
    raise EnvironmentFault(
        f"frozen_lake: none of {_MAX_DRAWS} lakes of size {size} with frozen_probability = {frozen_probability:g} has "
        f"a way to the goal of at least {min_distance} moves; raise frozen_probability or lower min_distance"
    )
