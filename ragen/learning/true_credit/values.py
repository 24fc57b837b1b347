"""Values before and after turns from the returns of continuations, with standard errors: the dataset `credits`.

    V(s) = mean_k R_k(s)        A(turn) = reward + V(after) - V(before)

Continuation k has the same random numbers in every state (common random numbers), so estimates of different states are
correlated, and the error of a difference or a mean of values is summed by k:

    e_k(s) = (R_k(s) - V(s)) / sqrt(n (n - 1)), and 0 for k >= n, the number of continuations of s

    se V(s) = sqrt(sum_k e_k(s)^2)        se sum_s w_s V(s) = sqrt(sum_k (sum_s w_s e_k(s))^2)

With as many continuations before as after a turn, this is the standard error of a mean of paired differences.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from starpo.ragen.learning.true_credit.states import TurnStates
from starpo.schemas.datasets import CREDITS

Returns = Sequence[np.ndarray]
"""Returns of a state's continuations, by their number k. float64, one array a state."""


def mean_with_se(returns: Returns, weights: Sequence[float] = (1.0,)) -> tuple[float, float]:
    """Return a weighted sum of the values of states, and its standard error.

    Args:
        returns: Of each state, at least two continuations.
        weights: Of each state: (1,) for a value, (-1, 1) for the difference that a turn makes, shares for a mean.
    """
    errors = np.zeros(max(map(len, returns)))
    total = 0.0
    for of_state, weight in zip(returns, weights, strict=True):
        number, value = len(of_state), of_state.mean()
        total += weight * value
        errors[:number] += weight * (of_state - value) / np.sqrt(number * (number - 1))
    return float(total), float(np.sqrt(np.square(errors).sum()))


def advantage_se(returns: Returns, before: int, after: int) -> float:
    """Return the standard error of a turn's advantage.

    Args:
        returns: Of each state, at least two continuations.
        before: The state before the turn.
        after: The state before the next turn; -1 where the episode ended, whose value after it is known to be 0.
    """
    if after < 0:
        return mean_with_se([returns[before]])[1]
    return mean_with_se([returns[before], returns[after]], (-1.0, 1.0))[1]


def credits_table(
    states: TurnStates,
    returns: Returns,
    successes: Sequence[float],
    num_tokens: Sequence[int],
    rewards: Sequence[float],
    solver: Sequence[float] | None,
) -> pa.Table:
    """Return dataset `credits`.

    Args:
        states: The turns and their states.
        returns: Of each state; at least two continuations each.
        successes: Share of each state's continuations that reach the goal.
        num_tokens: Tokens sampled in each state's continuations.
        rewards: Reward of each turn.
        solver: Mean return of the solver from each state; None without a solver.
    """
    values = [mean_with_se([of_state]) for of_state in returns]
    rows = []
    for (trajectory_id, group_id, turn), before, after, reward in zip(
        states.turns, states.before.tolist(), states.after.tolist(), rewards, strict=True
    ):
        value, value_se = values[before]
        value_after = values[after][0] if after >= 0 else 0.0
        rows.append(
            {
                "trajectory_id": trajectory_id,
                "group_id": group_id,
                "turn": turn,
                "state": states.digests[before],
                "num_continuations": len(returns[before]),
                "num_tokens": num_tokens[before],
                "returns": returns[before],
                "success": successes[before],
                "value": value,
                "value_se": value_se,
                "value_after": value_after,
                "reward": reward,
                "advantage": reward + value_after - value,
                "advantage_se": advantage_se(returns, before, after),
                "solver_before": None if solver is None else solver[before],
                "solver_after": None if solver is None else solver[after] if after >= 0 else 0.0,
            }
        )
    return pa.Table.from_pylist(rows, schema=CREDITS.schema)
