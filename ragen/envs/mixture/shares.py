"""Shares as integer weights: the tag that a seed draws, and the tags to which consecutive groups are dealt.

    {tag: share} -> weights -> draw (by hash, for any seed) or deal (exact, for consecutive groups)

Tags are taken in alphabetical order, so that nothing depends on their order in the settings.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import lcm

from starpo.ragen.core.seeding import derive_seed

Weights = tuple[tuple[str, int], ...]
"""(tag, weight) in the order of the tags."""


def weights_of(shares: Mapping[str, float]) -> Weights:
    """Return integer weights in proportion to the shares, taken as written in decimal: 0.1 is exactly a tenth."""
    return _weights(tuple(sorted(shares.items())))


def draw(weights: Weights, seed: int) -> str:
    """Return the tag that a seed draws, with probabilities proportional to the weights."""
    point = derive_seed(seed, "mixture") * sum(weight for _, weight in weights) >> 63
    for tag, weight in weights:
        point -= weight
        if point < 0:
            return tag
    raise AssertionError("a seed has 63 bits, so the point lies below the sum of the weights")


def deal(weights: Weights, number: int) -> list[str]:
    """Deal groups to tags: each goes to the tag that is furthest behind its share; ties go to the first in order.

    No tag is ever ahead of its share by a whole group, so the counts are exact where the shares divide evenly. The
    result for fewer groups is a prefix of that for more.

    Returns:
        Tags, [number].
    """
    total = sum(weight for _, weight in weights)
    given = {tag: 0 for tag, _ in weights}
    dealt = []
    for place in range(1, number + 1):
        tag, _ = max(weights, key=lambda of: of[1] * place - given[of[0]] * total)
        given[tag] += 1
        dealt.append(tag)
    return dealt


@lru_cache(maxsize=64)
def _weights(shares: tuple[tuple[str, float], ...]) -> Weights:
    exact = {tag: Fraction(str(share)) for tag, share in shares}
    scale = lcm(*(share.denominator for share in exact.values()))
    return tuple((tag, int(share * scale)) for tag, share in exact.items())
