"""Demonstrator for the bandit that knows what the names mean and mostly plays safe.

Its statements about the names are always true; its choice does not depend on past rewards. A policy that imitates it
knows which names have a risky and which a safe meaning, as it would from pre-training, and prefers the wrong arm: that
risk pays is left for the reward to teach.
"""

import random

from starpo.ragen.envs.bandit.environment import NAME_PAIRS, Bandit, BanditSettings
from starpo.ragen.envs.demonstration import Demonstration

MEANINGS: dict[str, str] = {
    name: meaning
    for pairs in NAME_PAIRS.values()
    for pair in pairs
    for name, meaning in zip(pair, ("safe", "risky"), strict=True)
}
"""Name -> meaning. BanditRev pays the opposite way."""


def demonstrate(environment: Bandit, skill: float, rng: random.Random) -> Demonstration:
    """State the meaning of the two names, in the order shown, and choose an arm. The environment is not stepped.

    The reasoning is like `Trader risky Teacher safe`.

    Args:
        environment: Environment before the pull.
        skill: Probability of choosing the high-risk arm, hence the demonstrator's success rate. Values up to 0.4 leave
            something to learn, and 0.25 suffices for the arm to be discovered.
        rng: The only source of randomness.
    """
    first, second = environment.actions
    think = f"{first} {MEANINGS[first]} {second} {MEANINGS[second]}"
    is_first = (environment.high_risk_arm == first) == (rng.random() < skill)
    return Demonstration(think, (first if is_first else second,))


def lessons(settings: BanditSettings) -> tuple[BanditSettings, ...]:
    """Return the settings of the bandits to demonstrate before training on `settings`: one per set of names.

    The meaning of held-out names must be taught too, as nothing could transfer to them otherwise. They are demonstrated
    with the same preference for the low-risk arm as all others, and demonstrations use no rewards, so these lessons
    teach what a name means and bias the policy against the arm that pays.
    """
    return tuple(settings.model_copy(update={"names": names}) for names in NAME_PAIRS)
