"""Further continuations go to the widest intervals, within the budget."""

import numpy as np
import pytest

from starpo.ragen.learning.true_credit.plan import further_continuations
from starpo.ragen.learning.true_credit.states import TurnStates

WIDE, NARROW, SURE = np.array([0.0, 10.0] * 4), np.array([4.0, 5.0] * 4), np.full(8, 3.0)
ONES = np.ones(3)


def alone(number: int) -> TurnStates:
    """Return states of so many trajectories of one turn."""
    turns = [(f"g{n}-0", f"g{n}", 0) for n in range(number)]
    places = [(name, 0) for name, _, _ in turns]
    return TurnStates([f"{n:016x}" for n in range(number)], places, turns, np.arange(number), np.full(number, -1))


def test_widest_interval_gets_most() -> None:
    new = further_continuations(alone(3), [NARROW, WIDE, SURE], ONES, 64, 4)
    assert new.sum() == 64
    assert new[1] > new[0] >= new[2]


def test_equal_first_returns_are_not_trusted() -> None:
    assert further_continuations(alone(3), [NARROW, WIDE, SURE], ONES, 240, 4)[2] > 0


def test_states_before_and_after_grow_together() -> None:
    turns = [("g0-0", "g0", 0), ("g0-0", "g0", 1)]
    states = TurnStates(["0" * 16, "f" * 16], [("g0-0", 0), ("g0-0", 1)], turns, np.array([0, 1]), np.array([1, -1]))
    new = further_continuations(states, [WIDE, WIDE[::-1]], np.ones(2), 16, 4)
    assert new.tolist() == [8, 8]


@pytest.mark.parametrize("budget", [3, 15, 16, 17, 100])
def test_budget_is_not_exceeded(budget: int) -> None:
    costs = np.array([1.0, 3.0, 2.0])
    new = further_continuations(alone(3), [NARROW, WIDE, SURE], costs, budget, 4)
    assert (new * costs).sum() <= budget
    assert (new % 4 == 0).all()


def test_nothing_varies_nothing_is_played() -> None:
    assert not further_continuations(alone(2), [SURE, SURE], np.ones(2), 64, 4).any()


def test_plan_repeats() -> None:
    returns = [NARROW, WIDE, WIDE]
    plans = [further_continuations(alone(3), returns, ONES, 100, 4).tolist() for _ in range(2)]
    assert plans[0] == plans[1]
