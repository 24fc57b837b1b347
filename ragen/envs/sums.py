"""Written-out arithmetic such as `3 * 4 = 12`, extracted from reasoning as claims, each true or false."""

import re
from fractions import Fraction

from starpo.ragen.envs.claim import Claim

_SIGN = r"[-+*/^×÷−]"
_SUM = re.compile(
    rf"(?<![\w.,)])(?<!{_SIGN})(?<!{_SIGN} )(?<!times |\\cdot )(\d{{1,9}}) ?([-+*/]) ?(\d{{1,9}}) ?= ?(-?\d{{1,9}})"
    rf"(?![\w%]|[.,]\d| ?{_SIGN} ?[\d(])"
)


def sums(reasoning: str) -> list[Claim]:
    """Return a claim for each operation on two integers in a text, in order, with the true result.

    Parts of longer expressions do not count: in `3 + 4 + 5 = 12`, `1/2 + 1/2 = 1` or `3,000 + 2 = 3,002` no two
    matched numbers give the stated result.
    """
    claims = []
    for found in _SUM.finditer(reasoning):
        left, operator, right, said = found.groups()
        value = calculate(operator, Fraction(left), Fraction(right))
        truth = "no number" if value is None else str(value)
        claims.append(Claim("sum", found[0], value is not None and value == int(said), truth))
    return claims


def calculate(operator: str, left: Fraction, right: Fraction) -> Fraction | None:
    """Apply one of + - * / to two numbers, exactly; None for a division by zero."""
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    return left / right if right else None
