"""Puzzles that can be solved: drawn from the end, an expression first and the target from it."""

import random

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.countdown.expression import Expression, Operation, value

OPERATORS = "+-*/"
_MAX_DRAWS = 20_000


def draw_puzzle(num_numbers: int, largest: int, targets: range, rng: random.Random) -> tuple[tuple[int, ...], int]:
    """Draw numbers and a target that they can make.

    Numbers are uniform, from 1; an expression over them is drawn, and both again until its value is a whole number
    among the targets. No solver is asked, so six numbers are drawn as fast as two.

    Returns:
        The numbers, sorted, and the target.

    Raises:
        EnvironmentFault: If 20,000 draws in a row have no such value.
    """
    for _ in range(_MAX_DRAWS):
        numbers = [rng.randint(1, largest) for _ in range(num_numbers)]
        made = value(random_expression(numbers, rng))
        if made is not None and made.denominator == 1 and int(made) in targets:
            return tuple(sorted(numbers)), int(made)
    raise EnvironmentFault(
        f"countdown: in {_MAX_DRAWS} draws {num_numbers} numbers up to {largest} made no target of {targets.start} to "
        f"{targets[-1]}; widen environment.min_target and max_target, or change num_numbers or max_number"
    )


def random_expression(numbers: list[int], rng: random.Random) -> Expression:
    """An expression that uses every number once: two at random are joined by a random operator, until one is left."""
    parts: list[Expression] = list(numbers)
    while len(parts) > 1:
        left = parts.pop(rng.randrange(len(parts)))
        right = parts.pop(rng.randrange(len(parts)))
        parts.append(Operation(rng.choice(OPERATORS), left, right))
    return parts[0]
