"""Countdown as a player plays it who calculates well, tries what comes to mind, and soon gives up.

The noise lies in decisions: which numbers to join and how, and whether to try again. What is said of a sum, and of
whether it makes the target, is always true. A policy that imitates it can calculate and notices a solution; that it
pays to try again, and what is worth trying, is left to learn by reward.
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
    """Try expressions until one makes the target or patience ends, and answer the last. The environment is not stepped.

    The thought is like `3 + 5 = 8, 8 - 2 = 6 vs 13 no, 3 * 5 = 15, 15 - 2 = 13 vs 13 yes`: of every attempt each
    operation with what it makes, and then the target beside that, and whether they are the same.

    Args:
        environment: Before the answer.
        skill: Probability that an attempt is the solver's. Otherwise it is drawn at random from those whose values on
            the way are whole, not negative, and at most 100 or the largest target, and that make something new.
        rng: The only source of chance. After a failed attempt the player gives up with probability 1/2, and in any case
            when another one would write down more than sixteen operations: after eight attempts with three numbers.
    """
    numbers, target = list(environment.numbers), environment.target
    largest = max(100, environment.settings.max_target, environment.settings.max_number)
    tries: dict[Fraction | None, str] = {}
    expression: Expression = numbers[0]
    while attempt := _attempt(numbers, target, largest, skill, rng, tries.keys()):
        expression, made = attempt, value(attempt)
        sums = ", ".join(map(_said, operations(expression)))
        tries[made] = f"{sums} vs {target} {'yes' if made == target else 'no'}"
        if made == target or len(tries) == _MAX_OPERATIONS // (len(numbers) - 1) or rng.random() < _GIVES_UP:
            break
    return Demonstration(", ".join(tries.values()), (write(expression),))


def _attempt(
    numbers: list[int], target: int, largest: int, skill: float, rng: random.Random, made: Collection[Fraction | None]
) -> Operation | None:
    """An expression whose value was not made yet; None: none is found."""
    if rng.random() < skill:
        for _ in range(_MAX_ORDERS):  # another order finds another solution
            solution = solve(tuple(rng.sample(numbers, len(numbers))), target)
            if isinstance(solution, Operation) and _is_plain(solution, largest):
                return solution
    for _ in range(_MAX_DRAWS):
        expression = random_expression(numbers, rng)
        if isinstance(expression, Operation) and _is_plain(expression, largest) and value(expression) not in made:
            return expression
    total = Operation("+", numbers[0], numbers[1])
    for number in numbers[2:]:  # of many large numbers nothing plain is found
        total = Operation("+", total, number)
    return None if value(total) in made else total


def _is_plain(expression: Expression, largest: int) -> bool:
    """Can everything on the way be written as a whole number that is neither negative nor large?"""
    made = [value(operation) for operation in operations(expression)]
    return all(number is not None and number.denominator == 1 and 0 <= number <= largest for number in made)


def _said(operation: Operation) -> str:
    return f"{value(operation.left)} {operation.operator} {value(operation.right)} = {value(operation)}"
