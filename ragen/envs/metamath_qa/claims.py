"""Claims in reasoning about a question: the arithmetic that it writes out."""

from starpo.ragen.envs.claim import Claim
from starpo.ragen.envs.sums import sums


def claims(observation: str, reasoning: str) -> list[Claim]:
    """Return the sums in the reasoning, in order; their truth does not depend on the question."""
    return sums(reasoning)
