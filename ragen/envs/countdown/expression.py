"""Arithmetic as text and as trees, with exact fractions.

The input is model output and may be anything: it is never passed to Python's `eval`, and its length, its depth and the
size of its numbers are bounded before anything is computed.

    "(3 + 5) * 2" -> evaluate -> Fraction(16)        Operation -> write -> "(3 + 5) * 2"
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, Union

MAX_CHARS = 200
"""Longer text evaluates to None."""

_MAX_PENDING = 64  # operators and parentheses that wait for their right operand
_MAX_DIGITS = 9
_MAX_BITS = 512  # of numerator and denominator of every intermediate value
_ALPHABET = re.compile(r"[-+*/()0-9 ]*")
_TOKEN = re.compile(r"[0-9]+|[-+*/()]")
_NUMBER = re.compile(r"[0-9]+")
_NEGATION = "~"
_BINDS = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2, _NEGATION: 3}


@dataclass(frozen=True)
class Operation:
    """Two expressions joined by an operator, one of + - * /."""

    operator: str
    left: "Expression"
    right: "Expression"


Expression: TypeAlias = Union[int, Operation]  # noqa: UP007
"""An integer, or an operation."""


def evaluate(text: str) -> Fraction | None:
    """Evaluate + - * / and parentheses over non-negative integers, with unary signs.

    One pass with a stack of values and one of operators: linear in the text's length, and without recursion.

    Returns:
        The value; None if the text is not such an expression, divides by zero, or exceeds 200 characters, 64 pending
        operators and parentheses, 9 digits per number, or 512 bits per intermediate value.
    """
    if len(text) > MAX_CHARS or not _ALPHABET.fullmatch(text):
        return None
    values: list[Fraction] = []
    pending: list[str] = []
    needs_operand = True
    for token in _TOKEN.findall(text):
        if needs_operand and token in "(+-":
            pending += {"(": "(", "-": _NEGATION, "+": ""}[token]
            if len(pending) > _MAX_PENDING:
                return None
        elif needs_operand:
            if len(token) > _MAX_DIGITS or not token.isdigit():
                return None
            values.append(Fraction(token))
            needs_operand = False
        elif token == ")":
            if not _carry_out(values, pending, 1) or not pending:
                return None
            pending.pop()
        elif token in _BINDS and token != "(":
            if not _carry_out(values, pending, _BINDS[token]):
                return None
            pending.append(token)
            needs_operand = True
        else:  # a number or an opening parenthesis directly after an operand
            return None
    is_complete = not needs_operand and "(" not in pending and _carry_out(values, pending, 1)
    return values[0] if is_complete else None


def numbers_in(text: str) -> list[int]:
    """Return the integers (ASCII digits) in a text, sorted; each is cut to ten digits, more than any puzzle uses."""
    return sorted(int(number[: _MAX_DIGITS + 1]) for number in _NUMBER.findall(text))


def calculate(operator: str, left: Fraction, right: Fraction) -> Fraction | None:
    """Apply one of + - * / to two numbers, exactly; None for a division by zero."""
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    return left / right if right else None


def value(expression: Expression) -> Fraction | None:
    """Return the value of an expression; None if it divides by zero."""
    if isinstance(expression, int):
        return Fraction(expression)
    left, right = value(expression.left), value(expression.right)
    return None if left is None or right is None else calculate(expression.operator, left, right)


def write(expression: Expression) -> str:
    """Write an expression with as few parentheses as possible, so that `evaluate` gives the same value."""
    if isinstance(expression, int):
        return str(expression)
    binds = _BINDS[expression.operator]
    left = _inside(expression.left, binds)
    right = _inside(expression.right, binds + (expression.operator in "-/"))
    return f"{left} {expression.operator} {right}"


def operations(expression: Expression) -> Iterator[Operation]:
    """Yield all operations in post-order, each after its operands."""
    if isinstance(expression, Operation):
        yield from operations(expression.left)
        yield from operations(expression.right)
        yield expression


def _inside(expression: Expression, binds: int) -> str:
    text = write(expression)
    return f"({text})" if isinstance(expression, Operation) and _BINDS[expression.operator] < binds else text


def _carry_out(values: list[Fraction], pending: list[str], binds: int) -> bool:
    """Apply pending operators of at least this precedence, down to a parenthesis; return False if there is no value."""
    while pending and _BINDS[pending[-1]] >= binds:
        operator = pending.pop()
        right = values.pop()
        made = -right if operator == _NEGATION else calculate(operator, values.pop(), right)
        if made is None or max(made.numerator.bit_length(), made.denominator.bit_length()) > _MAX_BITS:
            return False
        values.append(made)
    return True
