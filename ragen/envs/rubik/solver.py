"""Shortest solutions of the 2 x 2 cube in quarter turns, exact up to six, by bidirectional search.

A turn of one face and the same turn of the opposite face differ only in the orientation of the cube afterwards. So the
search fixes one corner and turns the three faces that do not touch it; its states are classes of 24 cubes.
"""

import random
from functools import cache

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.rubik.cube import ACTIONS, CORNERS, ROTATIONS, SOLVED, is_solved, permuted, turned

MAX_DISTANCE = 6
"""Maximum distance computed. No cube needs more than 14 quarter turns."""
_HALF = MAX_DISTANCE // 2
_STILL = CORNERS[0]
"""The fixed corner: left, down, behind."""
_TURNS = ("U", "U'", "R", "R'", "F", "F'")
"""Turns that leave the fixed corner in place."""
_MAX_DRAWS = 10_000


def upright(cube: str) -> str:
    """Rotate the cube so that the yellow, orange and blue corner lies left, down and behind.

    Cubes that differ only in orientation become equal.
    """
    wanted = [SOLVED[place] for place in _STILL]
    return next(
        held
        for held in (permuted(cube, rotation) for rotation in ROTATIONS)
        if [held[place] for place in _STILL] == wanted
    )


def distance(cube: str) -> int | None:
    """Return the minimum number of quarter turns that solve the cube; None if more than six."""
    near = layers(_HALF)
    layer, visited = {upright(cube)}, set[str]()
    for num_turns in range(MAX_DISTANCE - _HALF + 1):
        distances = [near[each] for each in layer if each in near]
        if distances:
            return num_turns + min(distances)
        visited |= layer
        layer = {turned(each, turn) for each in layer for turn in _TURNS} - visited
    return None


@cache
def layers(depth: int) -> dict[str, int]:
    """Map every upright cube at a distance of at most `depth` turns to its distance."""
    distances = {SOLVED: 0}
    layer = [SOLVED]
    for num_turns in range(1, depth + 1):
        following = dict.fromkeys(turned(cube, turn) for cube in layer for turn in _TURNS)
        layer = [cube for cube in following if cube not in distances]
        distances |= dict.fromkeys(layer, num_turns)
    return distances


def best_actions(cube: str) -> tuple[str, ...]:
    """Return the first turns of shortest solutions, in the order of `ACTIONS`; empty if solved or unknown.

    They contain either both or neither of a turn and the same turn of the opposite face.
    """
    left = distance(cube)
    if not left:
        return ()
    return tuple(action for action in ACTIONS if distance(turned(cube, action)) == left - 1)


def solve(cube: str) -> tuple[str, ...] | None:
    """Return a shortest solution, empty if the cube is solved; None if it takes more than six turns."""
    if distance(cube) is None:
        return None
    solution: list[str] = []
    while not is_solved(cube):
        solution.append(best_actions(cube)[0])
        cube = turned(cube, solution[-1])
    return tuple(solution)


def scrambled(num_turns: int, rng: random.Random) -> str:
    """Draw a cube whose shortest solution has exactly this length, in any of the 24 orientations.

    Args:
        num_turns: From 1 to `MAX_DISTANCE`. Sequences of that many random turns are drawn until one has no shortcut.
        rng: Advanced by as many draws as needed.
    """
    for _ in range(_MAX_DRAWS):
        cube = SOLVED
        for _ in range(num_turns):
            cube = turned(cube, rng.choice(ACTIONS))
        if distance(cube) == num_turns:
            return permuted(cube, rng.choice(ROTATIONS))
    raise EnvironmentFault(f"rubik: none of {_MAX_DRAWS} scrambles of {num_turns} turns needs as many to be solved")
