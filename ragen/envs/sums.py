"""Sums that are written out, such as `3 * 4 = 12`: as claims of a reasoning, each true or false."""

import re
from fractions import Fraction

from starpo.ragen.envs.claim import Claim

_SUM = re.compile(r"(?<![\d.])(\d{1,9}) ?([-+*/]) ?(\d{1,9}) ?= ?(-?\d{1,9})(?![\d.])")


def sums(reasoning: str) -> list[Claim]:
    """Every sum of two whole numbers in a text, in order, with what it does make."""
    claims = []
    for found in _SUM.finditer(reasoning):
        left, operator, right, said = found.groups()
        value = calculate(operator, Fraction(left), Fraction(right))
        truth = "no number" if value is None else str(value)
        claims.append(Claim("sum", found[0], value is not None and value == int(said), truth))
    return claims


def calculate(operator: str, left: Fraction, right: Fraction) -> Fraction | None:
    """What one of + - * / makes of two numbers, exactly; None: a division by zero."""
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    return left / right if right else None
