"""Claims of a reasoning about a question: the sums that it writes out."""

from starpo.ragen.envs.claim import Claim
from starpo.ragen.envs.sums import sums


def claims(observation: str, reasoning: str) -> list[Claim]:
    """The sums of a reasoning, in order; they are true or false whatever was asked."""
    return sums(reasoning)
