"""Merging of reasons that differ only in their numbers: each is given once, with its count and ranges of numbers."""

import re
from collections.abc import Iterable

_MAX_LISTED = 6
"""Maximum number of different numbers that are listed one by one."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?\b")


def merged_reasons(reasons: Iterable[str]) -> list[tuple[int, str]]:
    """Count each reason, in the order of first occurrence.

    Args:
        reasons: Reasons in words, such as 'kept: number 1 of 4'.

    Returns:
        Count and merged reason. Differing numbers are listed if they are few, else as 'lowest to highest', which for
        integers means all between: (2, 'kept: number 1 and 3 of 4').
    """
    alike: dict[str, list[str]] = {}
    for reason in reasons:
        alike.setdefault(_NUMBER.sub("0", reason), []).append(reason)
    return [(len(same), _merged(same)) for same in alike.values()]


def _merged(same: list[str]) -> str:
    places = iter(zip(*(_NUMBER.findall(reason) for reason in same), strict=True))

    def span(_: re.Match[str]) -> str:
        return _span(sorted(set(next(places)), key=float))

    return _NUMBER.sub(span, same[0])


def _span(numbers: list[str]) -> str:
    """Describe different numbers, ascending."""
    ends = numbers[0], numbers[-1]
    is_whole = all("." not in number and "e" not in number for number in numbers)
    is_run = is_whole and int(ends[1]) - int(ends[0]) == len(numbers) - 1
    if len(numbers) == 1:
        return numbers[0]
    if (len(numbers) > 2 and is_run) or len(numbers) > _MAX_LISTED:
        return f"{ends[0]} to {ends[1]}" + ("" if is_run or not is_whole else " (not all)")
    return f"{', '.join(numbers[:-1])} and {numbers[-1]}"
