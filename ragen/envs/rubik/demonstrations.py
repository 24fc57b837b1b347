"""The cube as a mediocre player plays it: sees how many faces each turn would make whole, and often turns any.

The noise lies in decisions (which turn), never in what is said of the cube.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.rubik.cube import num_whole_faces, turned
from starpo.ragen.envs.rubik.environment import Rubik
from starpo.ragen.envs.rubik.solver import best_actions

CONSIDERED = ("U", "U'", "R", "R'", "F", "F'")
"""One of each two turns that do the same to a cube, but for how it is held then."""


def demonstrate(environment: Rubik, skill: float, rng: random.Random) -> Demonstration:
    """Choose one turn. The environment is not stepped.

    The thought is like `U 0 U' 0 R 2 R' 6 F 0 F' 0`: how many faces would be of one colour after each turn. Six is
    the solved cube, and two is one turn before it.

    Args:
        environment: Before the cube is solved.
        skill: Probability that the turn begins a shortest solution, where one of at most six turns is known.
            Otherwise it is drawn uniformly from the six that are considered.
        rng: The only source of chance.
    """
    cube = environment.cube
    assert not environment.is_success, "the cube is solved: there is nothing to decide"
    best = best_actions(cube) if rng.random() < skill else ()
    chosen = rng.choice([turn for turn in CONSIDERED if turn in best] or list(CONSIDERED))
    think = " ".join(f"{turn} {num_whole_faces(turned(cube, turn))}" for turn in CONSIDERED)
    return Demonstration(think, (chosen,))
