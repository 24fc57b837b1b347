"""Merging of reasons that differ only in their numbers: each is given once, with its count and ranges of numbers."""

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?\b")


def merged_reasons(reasons: Iterable[str]) -> list[tuple[int, str]]:
    """Count each reason, in the order of first occurrence.

    Args:
        reasons: Reasons in words, such as 'kept: number 1 of 4'.

    Returns:
        Count and merged reason, with differing numbers as 'lowest to highest': (2, 'kept: number 1 to 2 of 4').
    """
    alike: dict[str, list[str]] = {}
    for reason in reasons:
        alike.setdefault(_NUMBER.sub("0", reason), []).append(reason)
    return [(len(same), _merged(same)) for same in alike.values()]


def _merged(same: list[str]) -> str:
    places = iter(zip(*(_NUMBER.findall(reason) for reason in same), strict=True))

    def span(_: re.Match[str]) -> str:
        numbers = sorted(set(next(places)), key=float)
        return numbers[0] if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"

    return _NUMBER.sub(span, same[0])
