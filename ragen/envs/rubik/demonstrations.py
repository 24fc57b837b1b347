"""Mediocre demonstrator for the cube that sees how many faces each turn completes, but often turns at random.

The noise is in the decisions (which turn), never in the statements about the cube.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.rubik.cube import num_whole_faces, turned
from starpo.ragen.envs.rubik.environment import Rubik
from starpo.ragen.envs.rubik.solver import best_actions

CONSIDERED = ("U", "U'", "R", "R'", "F", "F'")
"""One of each pair of turns that are equal up to the orientation of the cube."""


def demonstrate(environment: Rubik, skill: float, rng: random.Random) -> Demonstration:
    """Choose one turn. The environment is not stepped.

    The reasoning is like `U 0 U' 0 R 2 R' 6 F 0 F' 0`: the number of single-colour faces after each turn. Six is the
    solved cube; two is one turn before it.

    Args:
        environment: Environment before the cube is solved.
        skill: Probability that the turn begins a shortest solution, if that has at most six turns. Otherwise the turn
            is drawn uniformly from `CONSIDERED`.
        rng: The only source of randomness.
    """
    cube = environment.cube
    assert not environment.is_success, "the cube is solved: there is nothing to decide"
    best = best_actions(cube) if rng.random() < skill else ()
    chosen = rng.choice([turn for turn in CONSIDERED if turn in best] or list(CONSIDERED))
    think = " ".join(f"{turn} {num_whole_faces(turned(cube, turn))}" for turn in CONSIDERED)
    return Demonstration(think, (chosen,))
