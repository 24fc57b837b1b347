"""Values, advantages and their standard errors, on numbers computed by hand."""

import numpy as np
import pytest

from starpo.ragen.learning.true_credit.states import TurnStates
from starpo.ragen.learning.true_credit.values import advantage_se, credits_table, mean_with_se
from starpo.schemas.validate import validate

BEFORE, AFTER = np.array([1.0, 3.0, 5.0, 7.0]), np.array([2.0, 5.0, 5.0, 8.0])


def test_value_and_standard_error() -> None:
    # mean 4, deviations -3 -1 1 3: variance 20 / 3, of a mean of four 20 / 12
    assert mean_with_se([BEFORE]) == pytest.approx((4.0, (20 / 12) ** 0.5))


def test_advantage_error_is_of_paired_differences() -> None:
    differences = AFTER - BEFORE  # 1 2 0 1: mean 1, variance 2 / 3
    assert advantage_se([BEFORE, AFTER], 0, 1) == pytest.approx((2 / 3 / 4) ** 0.5)
    assert advantage_se([BEFORE, AFTER], 0, 1) == pytest.approx(differences.std(ddof=1) / 2)


def test_equal_returns_have_no_error() -> None:
    assert advantage_se([BEFORE, BEFORE], 0, 1) == 0.0


def test_unequal_numbers_pair_what_they_share() -> None:
    # e of BEFORE: (-3 -1 1 3) / sqrt(12); of its first two, mean 2: (-1 1) / sqrt(2)
    first = np.array([-1.0, 1.0]) / 2**0.5
    rest = np.array([-3.0, -1.0, 1.0, 3.0]) / 12**0.5
    expected = np.sqrt(((np.append(first, [0, 0]) - rest) ** 2).sum())
    assert advantage_se([BEFORE, BEFORE[:2]], 0, 1) == pytest.approx(expected)


def test_last_turn_has_error_of_value() -> None:
    assert advantage_se([BEFORE, AFTER], 0, -1) == mean_with_se([BEFORE])[1]


def test_mean_of_states_adds_errors() -> None:
    # weights 1/2 each of equal returns: the mean has the error of one of them, not of two independent ones
    assert mean_with_se([BEFORE, BEFORE], (0.5, 0.5))[1] == pytest.approx(mean_with_se([BEFORE])[1])


@pytest.mark.parametrize("solver", [None, [9.0, 6.0]])
def test_table_has_values_of_states(solver: list[float] | None) -> None:
    turns = [("g0-0", "g0", 0), ("g0-0", "g0", 1), ("g0-1", "g0", 0)]
    states = TurnStates(
        ["0" * 16, "f" * 16], [("g0-0", 0), ("g0-0", 1)], turns, np.array([0, 1, 0]), np.array([1, -1, -1])
    )
    table = credits_table(states, [BEFORE, AFTER], [0.5, 1.0], [40, 44], [0.5, 6.0, -1.0], solver)
    validate(table, "credits")
    rows = table.to_pylist()
    assert [row["advantage"] for row in rows] == [0.5 + 5 - 4, 6.0 - 5, -1.0 - 4]
    assert [row["value_after"] for row in rows] == [5.0, 0.0, 0.0]
    assert [row["solver_after"] for row in rows] == ([None] * 3 if solver is None else [6.0, 0.0, 0.0])
