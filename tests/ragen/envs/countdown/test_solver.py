"""The solver finds a solution exactly if there is one."""

from fractions import Fraction
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.envs.countdown.expression import calculate, evaluate, numbers_in, write
from starpo.ragen.envs.countdown.puzzles import OPERATORS
from starpo.ragen.envs.countdown.solver import solve

THREE = st.tuples(*[st.integers(1, 12)] * 3)


def everything(numbers):
    """Return all values of three numbers: two combined, then the third on either side; every order and operator."""
    made = set()
    for (a, b, c), first, second in product(permutations(numbers), OPERATORS, OPERATORS):
        inner = calculate(first, Fraction(a), Fraction(b))
        if inner is not None:
            made |= {calculate(second, inner, Fraction(c)), calculate(second, Fraction(c), inner)}
    return made


@given(THREE, st.integers(1, 60))
def test_three_numbers_equal_brute_force(numbers, target):
    solution = solve(numbers, target)
    assert (solution is not None) == (target in everything(numbers))
    if solution is not None:
        assert evaluate(write(solution)) == target
        assert numbers_in(write(solution)) == sorted(numbers)


@pytest.mark.parametrize(
    ("numbers", "target"),
    [
        ((3, 3, 8, 8), 24),  # 8 / (3 - 8 / 3): impossible without fractions
        ((1, 5, 5, 5), 24),  # 5 * (5 - 1 / 5)
        ((1, 3, 4, 6), 24),  # 6 / (1 - 3 / 4)
        ((75, 50, 2, 3, 8, 7), 812),
        ((6, 6), 36),
    ],
)
def test_known_puzzles(numbers, target):
    solution = solve(numbers, target)
    assert solution is not None
    assert evaluate(write(solution)) == target
    assert numbers_in(write(solution)) == sorted(numbers)
