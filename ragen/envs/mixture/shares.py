"""Shares as whole numbers: which tag a seed draws, and to which tags a row of groups is dealt.

    {tag: share} -> weights -> draw (by hash, for any seed) or deal (exact, for groups that follow one another)

Tags are taken in alphabetical order, so that nothing depends on the order in which settings name them.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import lcm

from starpo.ragen.core.seeding import derive_seed

Weights = tuple[tuple[str, int], ...]
"""(tag, weight) in the order of the tags."""


def weights_of(shares: Mapping[str, float]) -> Weights:
    """Whole numbers in the proportion of the shares, as these are written: 0.1 is a tenth."""
    return _weights(tuple(sorted(shares.items())))


def draw(weights: Weights, seed: int) -> str:
    """The tag that a seed draws, each as often as its weight says."""
    point = derive_seed(seed, "mixture") * sum(weight for _, weight in weights) >> 63
    for tag, weight in weights:
        point -= weight
        if point < 0:
            return tag
    raise AssertionError("a seed has 63 bits, so the point lies below the sum of the weights")


def deal(weights: Weights, number: int) -> list[str]:
    """Deal groups to tags: each goes to the one that is furthest behind its share, a tie to the first in order.

    No tag is ever ahead of its share by a whole group, so where the shares come out even each has exactly its own. More
    groups begin with the same ones.

    Returns:
        Tags. [number]
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
