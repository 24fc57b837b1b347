"""A question of reasoning-gym as somebody answers it who often takes the answer to another one.

It shows the form, and what answers look like; which answer is right is left to learn by reward.
"""

import random

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.suites.reasoning_gym import ReasoningGymTask

THOUGHT = "I answer"
"""All that is thought: the package tells answers, and not how they are found."""
_MAX_DRAWS = 20


def demonstrate(environment: ReasoningGymTask, skill: float, rng: random.Random) -> Demonstration:
    """Answer the present question. The environment is not stepped.

    Args:
        environment: In an episode that has not ended.
        skill: Probability of the stored answer. Otherwise it is the answer to another question, drawn uniformly, which
            is drawn again up to 20 times where it is the right one too.
        rng: The only source of chance.

    Raises:
        ConfigError: If the package stores no answers to this task's questions, and only scores those that are given.
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
