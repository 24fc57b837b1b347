"""The bandit as a player who knows what names mean plays it, and who mostly plays safe.

What it says of the names is always true; what it chooses does not depend on what arms have paid. A policy that imitates
it knows which names are of risky and which of safe meaning, as pre-training would have taught it, and prefers the arm
that is wrong: that risk pays is left to learn by reward.
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
"""By name, what it means. BanditRev pays against this."""


def demonstrate(environment: Bandit, skill: float, rng: random.Random) -> Demonstration:
    """Say what the two names mean, in the order shown, and choose. The environment is not stepped.

    The thought is like `Trader risky Teacher safe`.

    Args:
        environment: Before the pull.
        skill: Probability of choosing the arm of high risk, hence the player's success. At most 0.4 leaves something
            to learn, and 0.25 is enough for it to be found.
        rng: The only source of chance.
    """
    first, second = environment.actions
    think = f"{first} {MEANINGS[first]} {second} {MEANINGS[second]}"
    is_first = (environment.high_risk_arm == first) == (rng.random() < skill)
    return Demonstration(think, (first if is_first else second,))


def lessons(settings: BanditSettings) -> tuple[BanditSettings, ...]:
    """Settings of the bandits to demonstrate before training on `settings`: one for each set of names.

    The meaning of held-out names must be taught too, or nothing could be transferred to them. They are demonstrated
    with the same preference for the arm of low risk as all others, and nothing is paid in a demonstration, so these
    lessons say what a name means and speak against the arm that pays.
    """
    return tuple(settings.model_copy(update={"names": names}) for names in NAME_PAIRS)
