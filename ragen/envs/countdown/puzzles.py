"""Solvable puzzles, generated backwards: an expression is drawn first, and its value is the target."""

import random

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.countdown.expression import Expression, Operation, value

OPERATORS = "+-*/"
_MAX_DRAWS = 20_000


def draw_puzzle(num_numbers: int, largest: int, targets: range, rng: random.Random) -> tuple[tuple[int, ...], int]:
    """Draw numbers and a target that they can make.

    The numbers are uniform from 1 to `largest`. They and an expression over them are redrawn until its value is an
    integer in `targets`. This needs no solver, so six numbers take no longer than two.

    Returns:
        The numbers, sorted, and the target.

    Raises:
        EnvironmentFault: If none of 20,000 draws has such a value.
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
    """Draw an expression that uses every number once, by joining two random parts at a time with a random operator."""
    parts: list[Expression] = list(numbers)
    while len(parts) > 1:
        left = parts.pop(rng.randrange(len(parts)))
        right = parts.pop(rng.randrange(len(parts)))
        parts.append(Operation(rng.choice(OPERATORS), left, right))
    return parts[0]
