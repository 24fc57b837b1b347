"""Demonstrator for Countdown that calculates well, tries random expressions, and soon gives up.

The noise is in the decisions: which numbers to combine and how, and whether to try again. Results, and whether they
reach the target, are always stated correctly. A policy that imitates it can calculate and recognises a solution; that
trying again pays, and what is worth trying, is left for the reward to teach.
"""

import random
from collections.abc import Collection
from fractions import Fraction

from starpo.ragen.envs.countdown.environment import Countdown
from starpo.ragen.envs.countdown.expression import Expression, Operation, operations, value, write
from starpo.ragen.envs.countdown.puzzles import random_expression
from starpo.ragen.envs.countdown.solver import solve
from starpo.ragen.envs.demonstration import Demonstration

_GIVES_UP = 0.5
_MAX_OPERATIONS = 16
_MAX_DRAWS = 1000
_MAX_ORDERS = 4


def demonstrate(environment: Countdown, skill: float, rng: random.Random) -> Demonstration:
    """Try expressions until one makes the target or the player gives up, and answer with the last one.

    The environment is not stepped. The reasoning is like
    `3 + 5 = 8, 8 - 2 = 6 vs 13 no, 3 * 5 = 15, 15 - 2 = 13 vs 13 yes`: for every attempt, each operation with its
    result, then the target, and whether the two are equal.

    Args:
        environment: Environment before the answer.
        skill: Probability that an attempt is the solver's. Otherwise it is drawn at random from the expressions with a
            new value whose intermediate values are non-negative integers up to the largest of 100, `max_target` and
            `max_number`.
        rng: The only source of randomness. After a failed attempt the player gives up with probability 1/2, and always
            if another attempt would bring the total above sixteen operations: after eight attempts with three numbers.
    """
    numbers, target = list(environment.numbers), environment.target
    largest = max(100, environment.settings.max_target, environment.settings.max_number)
    tries: dict[Fraction | None, str] = {}
    expression: Expression = numbers[0]
    while attempt := _attempt(numbers, target, largest, skill, rng, tries.keys()):
        expression, made = attempt, value(attempt)
        sums = ", ".join(map(_equation, operations(expression)))
        tries[made] = f"{sums} vs {target} {'yes' if made == target else 'no'}"
        if made == target or len(tries) == _MAX_OPERATIONS // (len(numbers) - 1) or rng.random() < _GIVES_UP:
            break
    return Demonstration(", ".join(tries.values()), (write(expression),))


def _attempt(
    numbers: list[int], target: int, largest: int, skill: float, rng: random.Random, made: Collection[Fraction | None]
) -> Operation | None:
    """Return an expression with a new value, or a solution; None if none is found."""
    if rng.random() < skill:
        for _ in range(_MAX_ORDERS):  # another order yields another solution
            solution = solve(tuple(rng.sample(numbers, len(numbers))), target)
            if isinstance(solution, Operation) and _is_plain(solution, largest):
                return solution
    for _ in range(_MAX_DRAWS):
        expression = random_expression(numbers, rng)
        if isinstance(expression, Operation) and _is_plain(expression, largest) and value(expression) not in made:
            return expression
    total = Operation("+", numbers[0], numbers[1])
    for number in numbers[2:]:  # fallback for many large numbers
        total = Operation("+", total, number)
    return None if value(total) in made else total


def _is_plain(expression: Expression, largest: int) -> bool:
    """Whether all intermediate values are non-negative integers that are not too large."""
    made = [value(operation) for operation in operations(expression)]
    return all(number is not None and number.denominator == 1 and 0 <= number <= largest for number in made)


def _equation(operation: Operation) -> str:
    return f"{value(operation.left)} {operation.operator} {value(operation.right)} = {value(operation)}"
