"""Tokens at which a policy is most uncertain: the forks of its reasoning."""

import math

from torch import Tensor


def most_uncertain(entropies: Tensor, share: float) -> Tensor:
    """Mark the tokens with the highest entropy ("Beyond the 80/20 Rule", 2506.01939: the top 20%).

        H >= tau,   tau the ceil(share * n)-th highest entropy

    The paper takes the entropies of each batch as its step begins; here they are those before the update, so that the
    tokens of a mini-batch are the same in every epoch.

    Args:
        entropies: Entropies of the tokens of a mini-batch, nats. [n]
        share: Share of the tokens, above 0.

    Returns:
        bool [n]; more than the share if entropies are equal at its edge.
    """
    if not len(entropies):
        return entropies > 0
    return entropies >= entropies.topk(max(1, math.ceil(share * len(entropies) - 1e-9))).values[-1]
