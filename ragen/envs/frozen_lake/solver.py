"""Optimal play on a lake: value iteration over a finite horizon.

The values are upper bounds for agents, which plan several actions ahead without observing slips in between.

Shapes: A actions in the order of `ACTIONS`, S cells, H actions left (0 .. horizon).
"""

import numpy as np

from starpo.ragen.envs.frozen_lake.map import ACTIONS, LakeMap

_DECIMALS = 12  # values equal to this precision are ties: summation order must not decide between actions


def transition_probabilities(lake: LakeMap, slip: float) -> np.ndarray:
    """P(s'|s, a) as float64 [A, S, S]; holes and the goal are absorbing."""
    transitions = np.zeros((len(ACTIONS), lake.num_cells, lake.num_cells))
    for cell in range(lake.num_cells):
        for index, action in enumerate(ACTIONS):
            outcomes = ((1.0, cell),) if lake.is_end(cell) else lake.outcomes(cell, action, slip)
            for probability, reached in outcomes:
                transitions[index, cell, reached] += probability
    return transitions


def success_probabilities(lake: LakeMap, transitions: np.ndarray, horizon: int) -> np.ndarray:
    """Probability of reaching the goal under optimal play, by backward induction.

    V_0(s) = 1 if s is the goal else 0;  V_h(s) = max_a sum_s' P(s'|s, a) V_{h-1}(s').

    Args:
        lake: The map.
        transitions: `transition_probabilities` on it.
        horizon: Maximum number of actions left, at least 0.

    Returns:
        float64 [H, S] with H = horizon + 1: row h is for h actions left; 0 in holes, 1 at the goal.
    """
    values = np.zeros((horizon + 1, lake.num_cells))
    values[0, lake.goal] = 1.0
    for left in range(1, horizon + 1):
        values[left] = (transitions @ values[left - 1]).max(axis=0)
    return values


def best_plan(lake: LakeMap, cell: int, slip: float, num_actions: int, actions_left: int) -> tuple[str, ...]:
    """Plan actions in advance, each optimal for the then current belief about the player's position.

    The belief is a distribution over cells. The value of an action is its expected value over the belief under full
    observability afterwards (QMDP). Without slip the plan is the start of a shortest path.

    Args:
        lake: The map.
        cell: Cell of the player; not terminal.
        slip: Probability of slipping.
        num_actions: Maximum length of the plan, at least 1.
        actions_left: Actions left in the episode, at least 1; no plan is longer.

    Returns:
        At least 1 action; fewer than `num_actions` if the walk is then over for certain, or few actions are left.
    """
    assert not lake.is_end(cell), "the walk has ended: there is nothing to plan"
    assert num_actions >= 1, "a plan of no actions is none"
    assert actions_left >= 1, "there are no actions left to plan"
    transitions = transition_probabilities(lake, slip)
    values = success_probabilities(lake, transitions, actions_left - 1)
    is_end = np.array([lake.is_end(at) for at in range(lake.num_cells)])
    belief = np.eye(lake.num_cells)[cell]
    plan: list[str] = []
    for left in range(actions_left - 1, max(actions_left - 1 - num_actions, -1), -1):
        beliefs = belief @ transitions
        # [A, H]: success within `left` further actions; ties are broken by success within one fewer, and so on.
        worth = np.round(beliefs @ values[left::-1].T, _DECIMALS).tolist()
        best = worth.index(max(worth))
        plan.append(ACTIONS[best])
        belief = beliefs[best]
        if belief[is_end].sum() > 1.0 - 10.0**-_DECIMALS:
            break
    return tuple(plan)
