"""True advantages as an estimator: a number by hand, and what they add up to."""

import numpy as np
import torch

from starpo.ragen.learning.objectives.estimates import scale_advantages
from starpo.ragen.learning.objectives.monte_carlo import monte_carlo
from starpo.ragen.learning.true_credit.states import TurnStates
from starpo.ragen.learning.true_credit.values import credits_table
from tests.ragen.learning.objectives.estimator_inputs import inputs_of

FIRST = 1.0, -0.1, 2.0
"""Rewards of a trajectory of three turns, through the states 0, 1 and 2."""
SECOND = (-0.1, 0.0)
"""Rewards of another, through the states 0 and 2."""
RETURNS = [np.array(returns) for returns in ([1.0, 3.0], [0.0, 1.0], [2.0, 4.0])]
"""Of two continuations from each state: values of 2, 0.5 and 3."""


def credited() -> torch.Tensor:
    """True advantages of both trajectories, by the stage's own table, [2, 3]."""
    turns = [*(("a", "g", turn) for turn in range(3)), *(("b", "g", turn) for turn in range(2))]
    states = TurnStates(
        ["x", "y", "z"], [("a", 0), ("a", 1), ("a", 2)], turns, np.array([0, 1, 2, 0, 2]), np.array([1, 2, -1, 2, -1])
    )
    rows = credits_table(states, RETURNS, [0.0] * 3, [0] * 3, [*FIRST, *SECOND], None)["advantage"].to_pylist()
    return torch.tensor([rows[:3], [*rows[3:], 0.0]], dtype=torch.float64)


def inputs(**fields):
    """Two tokens in every turn, of which the last one of the first trajectory's first turn takes no part."""
    rewards = [[0.0, 1.0, 0.0, -0.1, 0.0, 2.0], [0.0, -0.1, 0.0, 0.0, 0.0, 0.0]]
    mask = [[True, False, True, True, True, True], [True, True, True, True, False, False]]
    turns = [[0, 0, 1, 1, 2, 2]] * 2
    returns = [sum(FIRST), sum(SECOND)]
    return inputs_of(rewards, turns=turns, mask=mask, returns=returns, marks_BK=credited(), **fields)


def test_number_computed_by_hand() -> None:
    # first: 1 + 0.5 - 2 = -0.5, -0.1 + 3 - 0.5 = 2.4, 2 + 0 - 3 = -1; second: -0.1 + 3 - 2 = 0.9, 0 + 0 - 3 = -3
    expected = [[-0.5, 0.0, 2.4, 2.4, -1.0, -1.0], [0.9, 0.9, -3.0, -3.0, 0.0, 0.0]]
    estimate = monte_carlo(inputs())
    torch.testing.assert_close(estimate.advantages_BT, torch.tensor(expected, dtype=torch.float64))
    assert estimate.value_targets_BT is None


def test_baseline_is_the_first_value() -> None:
    """Both trajectories begin in the state whose value is 2, so that returns of 2.9 and -0.1 deviate by 1.5."""
    estimate = monte_carlo(inputs())
    torch.testing.assert_close(estimate.baselines_B, torch.tensor([2.0, 2.0], dtype=torch.float64))
    scaled = scale_advantages(estimate, inputs(), "batch")
    torch.testing.assert_close(scaled, estimate.advantages_BT / 1.5)


def test_discounts_have_no_effect() -> None:
    discounted = monte_carlo(inputs(gamma=0.5, gamma_turn=0.5, lambda_turn=0.5)).advantages_BT
    torch.testing.assert_close(discounted, monte_carlo(inputs()).advantages_BT)
