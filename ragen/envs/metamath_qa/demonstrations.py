"""Demonstrator for word problems that calculates well but often chooses the wrong operation.

The noise is in the decisions: which operation a word stands for. The arithmetic is always correct. A policy that
imitates it can calculate; what the words mean is left for the reward to teach.
"""

import operator
import random

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.metamath_qa.environment import MetaMathQA

_CALCULATE = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def demonstrate(environment: MetaMathQA, skill: float, rng: random.Random) -> Demonstration:
    """Write the sums and answer with the last result. The environment is not stepped.

    The reasoning is like `3 * 4 = 12, 12 - 5 = 7`.

    Args:
        environment: Environment with a generated word problem that is not answered yet.
        skill: Probability that a question's operations are the right ones. Otherwise each is drawn at random from
            + - *, without differences below zero.
        rng: The only source of randomness.

    Raises:
        ConfigError: If the questions are from a file, for which there is no solver.
    """
    question = environment.question
    if not question.changes:
        raise ConfigError(
            "metamath_qa has a demonstrator for its word problems, but none for a file's questions (environment.path). "
            "Name one of your own in policy.demonstrator, or train a model that knows the format: policy.type = "
            "'pretrained'"
        )
    is_right, made, sums = rng.random() < skill, question.start, []
    for right, number in question.changes:
        meant = right if is_right else rng.choice("+-*" if number <= made else "+*")
        total = _CALCULATE[meant](made, number)
        sums.append(f"{made} {meant} {number} = {total}")
        made = total
    return Demonstration(", ".join(sums), (str(made),))
