"""Demonstrator for questions: it knows some answers and guesses the others.

The form of an answer is always right, so that a policy that imitates it can answer; which answer is right is left for
the reward to teach.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.questions.environment import Questions


def demonstrate(environment: Questions, skill: float, rng: random.Random) -> Demonstration:
    """Answer with a right answer, or with one that is right for another question. The environment is not stepped.

    Args:
        environment: Environment with a question that is not answered yet.
        skill: Probability of a right answer.
        rng: The only source of randomness.
    """
    is_right = rng.random() < skill
    answer = rng.choice(environment.question.answers) if is_right else environment.random_action(rng)
    return Demonstration("", (answer,))
