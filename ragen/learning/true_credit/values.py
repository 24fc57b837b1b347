"""Values before and after turns from the returns of continuations, with standard errors: the dataset `credits`.

    V(s) = mean_k R_k(s)        A(turn) = reward + V(after) - V(before)

Continuation k has the same random numbers in every state (common random numbers), so returns before and after a turn
correlate. With n and m of them, of which the first min(n, m) have a partner,

    var A = var R(before) / n + var R(after) / m - 2 min(n, m) / (n m) cov(R(before), R(after))
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from starpo.ragen.learning.true_credit.states import States
from starpo.schemas.datasets import CREDITS

Returns = Sequence[np.ndarray]
"""Returns of a state's continuations, by their number k. float64, one array a state."""


def value_of(returns: np.ndarray) -> tuple[float, float]:
    """Return the mean of a state's returns, at least two, and its standard error (ddof 1)."""
    return float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(len(returns)))


def advantage_se(before: np.ndarray, after: np.ndarray | None) -> float:
    """Return the standard error of a turn's advantage.

    Args:
        before: Returns of the continuations from before the turn; at least two.
        after: Those from before the next turn; None where the episode ended, whose value after it is known to be 0.
    """
    variance = before.var(ddof=1) / len(before)
    if after is not None:
        num_pairs = min(len(before), len(after))
        deviations = (returns[:num_pairs] - returns[:num_pairs].mean() for returns in (before, after))
        covariance = float(np.multiply(*deviations).sum() / (num_pairs - 1))
        bound = float(before.std(ddof=1) * after.std(ddof=1))  # the variances are of more returns than the covariance
        covariance = min(max(covariance, -bound), bound)
        variance += after.var(ddof=1) / len(after)
        variance -= 2 * num_pairs / (len(before) * len(after)) * covariance
    return float(np.sqrt(max(variance, 0.0)))


def credits_table(
    states: States,
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
    values = [value_of(of_state) for of_state in returns]
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
                "advantage_se": advantage_se(returns[before], returns[after] if after >= 0 else None),
                "solver_before": None if solver is None else solver[before],
                "solver_after": None if solver is None else solver[after] if after >= 0 else 0.0,
            }
        )
    return pa.Table.from_pylist(rows, schema=CREDITS.schema)
