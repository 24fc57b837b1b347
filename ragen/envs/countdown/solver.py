"""Exact solutions: every tree over all numbers, by dynamic programming over subsets, in exact fractions.

The values of a subset are obtained from every split of it into two parts, combined with every operator. For the full
set they are not enumerated: each value of one part determines the value of the other part that would make the target.
"""

from collections.abc import Iterator
from fractions import Fraction

from starpo.ragen.envs.countdown.expression import Expression, Operation

_Values = dict[Fraction, Expression]
"""Values that some numbers can make, each with one expression for it."""


def solve(numbers: tuple[int, ...], target: int) -> Expression | None:
    """Find an expression that uses every number once and makes the target; None if there is none.

    Args:
        numbers: Two to six numbers; which of several solutions is found depends on their order.
        target: Target; positive.
    """
    known: dict[int, _Values] = {1 << place: {Fraction(number): number} for place, number in enumerate(numbers)}
    full, wanted = (1 << len(numbers)) - 1, Fraction(target)
    for left, right in sorted(_splits(full), key=_larger_part):  # even splits first: they need the fewest values
        values, others = _values(left, known), _values(right, known)
        for number, expression in values.items():
            for operator, other, is_swapped in _steps_to(number, wanted):
                if other in others:
                    pair = (others[other], expression) if is_swapped else (expression, others[other])
                    return Operation(operator, *pair)
    return None


def _values(subset: int, known: dict[int, _Values]) -> _Values:
    if subset in known:
        return known[subset]
    operations: _Values = {}
    for left, right in _splits(subset):
        for a, first in _values(left, known).items():
            for b, second in _values(right, known).items():
                operations.setdefault(a + b, Operation("+", first, second))
                operations.setdefault(a * b, Operation("*", first, second))
                operations.setdefault(a - b, Operation("-", first, second))
                operations.setdefault(b - a, Operation("-", second, first))
                if b:
                    operations.setdefault(a / b, Operation("/", first, second))
                if a:
                    operations.setdefault(b / a, Operation("/", second, first))
    known[subset] = operations
    return operations


def _steps_to(number: Fraction, wanted: Fraction) -> Iterator[tuple[str, Fraction, bool]]:
    """Yield (operator, other operand, whether the other operand is the left one) that give the wanted value."""
    yield "+", wanted - number, False
    yield "-", number - wanted, False
    yield "-", wanted + number, True
    if number:
        yield "*", wanted / number, False
        yield "/", wanted * number, True
        yield "/", number / wanted, False


def _splits(subset: int) -> Iterator[tuple[int, int]]:
    """Yield every split of a set of at least two members once: the first part contains the lowest member."""
    lowest = subset & -subset
    part = (subset - 1) & subset
    while part:
        if part & lowest:
            yield part, subset ^ part
        part = (part - 1) & subset


def _larger_part(split: tuple[int, int]) -> int:
    return max(part.bit_count() for part in split)
