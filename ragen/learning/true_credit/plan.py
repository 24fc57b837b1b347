"""How many further continuations each state gets: as many as make the widest intervals of advantages narrower.

returns so far, budget -> further_continuations -> number of new ones of each state

A variance that few returns show is drawn towards the mean over all turns: eight equal returns do not prove that the
ninth is the same, and a state that got no more because its first ones agreed would stay wrong.
"""

from heapq import heapify, heapreplace

import numpy as np

from starpo.ragen.learning.true_credit.states import TurnStates
from starpo.ragen.learning.true_credit.values import Returns, advantage_se

PRIOR_RETURNS = 4
"""Number of returns that the mean variance over all turns weighs as much as."""


def further_continuations(
    states: TurnStates, returns: Returns, costs: np.ndarray, budget: float, step: int
) -> np.ndarray:
    """Share a budget among states.

    Again and again the turn whose advantage has the largest standard error is taken, and of the states before and after
    it the one with fewer continuations gets `step` more, or both.

    Args:
        states: The turns and their states.
        returns: Of each state so far, at least two.
        costs: Of a continuation from each state. float64 [S]
        budget: What all new continuations together may cost at most; nothing is begun that would exceed it.
        step: Number of continuations that a state gets at a time.

    Returns:
        Number of new continuations. int64 [S]
    """
    counts = np.array([len(of_state) for of_state in returns])
    start = counts.copy()
    sides: list[tuple[int, ...]] = [
        (b,) if a < 0 else (b, a) for b, a in zip(states.before.tolist(), states.after.tolist(), strict=True)
    ]
    spread = _variances(states, returns, sides)
    turns = [(-spread[turn] / counts[list(of)].min(), turn) for turn, of in enumerate(sides)]
    heapify(turns)
    while turns:
        width, turn = turns[0]
        fewest = min(counts[side] for side in sides[turn])
        if (now := -spread[turn] / fewest) > width:  # another turn's states were this one's, too
            heapreplace(turns, (now, turn))
            continue
        chosen = [side for side in sides[turn] if counts[side] == fewest]
        budget -= step * costs[chosen].sum()
        if budget < 0 or width == 0:
            break
        counts[chosen] += step
        heapreplace(turns, (-spread[turn] / (fewest + step), turn))
    return counts - start


def _variances(states: TurnStates, returns: Returns, sides: list[tuple[int, ...]]) -> np.ndarray:
    """Return the variance of each turn's advantage times its number of continuations. float64 [T]"""
    before, after = states.before.tolist(), states.after.tolist()
    errors = [advantage_se(returns, b, a) for b, a in zip(before, after, strict=True)]
    numbers = np.array([min(len(returns[side]) for side in of) for of in sides])
    variances = np.square(errors) * numbers
    return (variances * (numbers - 1) + variances.mean() * PRIOR_RETURNS) / (numbers - 1 + PRIOR_RETURNS)
