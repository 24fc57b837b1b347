"""Claims about the two arms: whether they are the ones shown, and the meaning of their names."""

import re

from starpo.ragen.envs.bandit.demonstrations import MEANINGS
from starpo.ragen.envs.claim import Claim

_ARMS = re.compile(r"Arms: (\w+) (\w+)")
_TERSE = re.compile(r"(\w+) (safe|risky) (\w+) (safe|risky)")


def claims(observation: str, reasoning: str) -> list[Claim]:
    """Return the checkable claims in the reasoning, in order; [] if observation or reasoning cannot be parsed."""
    arms, terse = _ARMS.match(observation), _TERSE.fullmatch(reasoning.strip())
    if arms is None or terse is None:
        return []
    found = []
    for name, meaning in ((terse[1], terse[2]), (terse[3], terse[4])):
        found.append(Claim("arm shown", name, name in arms.groups(), " and ".join(arms.groups())))
        if name in MEANINGS:
            found.append(Claim("meaning of name", f"{name} {meaning}", meaning == MEANINGS[name], MEANINGS[name]))
    return found
