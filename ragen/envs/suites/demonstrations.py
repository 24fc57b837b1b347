"""Demonstrator for reasoning-gym that often gives the answer to a different question.

It shows the format and what answers look like; which answer is right is left for the reward to teach.
"""

import random

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.suites.reasoning_gym import ReasoningGymTask

THOUGHT = "I answer"
"""The entire reasoning: the package gives answers without derivations."""
_MAX_DRAWS = 20


def demonstrate(environment: ReasoningGymTask, skill: float, rng: random.Random) -> Demonstration:
    """Answer the current question. The environment is not stepped.

    Args:
        environment: An environment whose episode has not ended.
        skill: Probability of the stored answer. Otherwise the answer to another question, drawn uniformly, in at most
            20 draws to find one that differs from the right answer.
        rng: The only source of randomness.

    Raises:
        ConfigError: If the package stores no answers for this task but only scores given ones.
    """
    if environment.item["answer"] is None:
        raise ConfigError(
            f"reasoning_gym/{environment.settings.task} has no stored answers that could be imitated. Name a "
            "demonstrator of your own in policy.demonstrator, or train a model that knows the format: policy.type = "
            "'pretrained'"
        )
    right = str(environment.item["answer"])
    answer = right
    if rng.random() >= skill:
        for _ in range(_MAX_DRAWS):
            answer = environment.answer_of(rng.randrange(environment.settings.size))
            if answer != right:
                break
    return Demonstration(THOUGHT, (environment.grammar.read(answer) or answer,))
