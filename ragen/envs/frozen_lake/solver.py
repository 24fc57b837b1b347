"""What the best player of a lake can do: value iteration over a finite horizon.

The values are upper bounds for agents, which plan several actions ahead without seeing where they slip.

Shapes: A actions in the order of `ACTIONS`, S cells, H actions left (0 .. horizon).
"""

import numpy as np

from starpo.ragen.envs.frozen_lake.map import ACTIONS, LakeMap

_DECIMALS = 12  # values that agree to these are ties: sums in another order must not decide between actions


def transition_probabilities(lake: LakeMap, slip: float) -> np.ndarray:
    """P(s'|s, a) as float64 [A, S, S]; nothing leads out of holes and the goal."""
    transitions = np.zeros((len(ACTIONS), lake.num_cells, lake.num_cells))
    for cell in range(lake.num_cells):
        for index, action in enumerate(ACTIONS):
            outcomes = ((1.0, cell),) if lake.is_end(cell) else lake.outcomes(cell, action, slip)
            for probability, reached in outcomes:
                transitions[index, cell, reached] += probability
    return transitions


def success_probabilities(lake: LakeMap, slip: float, horizon: int) -> np.ndarray:
    """Probability of reaching the goal under optimal play, by backward induction.

    V_0(s) = 1 if s is the goal else 0;  V_h(s) = max_a sum_s' P(s'|s, a) V_{h-1}(s').

    Args:
        lake: The map.
        slip: Probability of not going where intended.
        horizon: Most actions left that are asked for, at least 0.

    Returns:
        float64 [H, S] with H = horizon + 1: row h is for h actions left; 0 in holes, 1 at the goal.
    """
    return _values(lake, transition_probabilities(lake, slip), horizon)


def best_plan(lake: LakeMap, cell: int, slip: float, num_actions: int, actions_left: int) -> tuple[str, ...]:
    """Actions decided on in advance, each the best for what is then believed about where the player is.

    The belief is a distribution over cells; an action is worth what it is worth, on average over the belief, to a
    player who sees everything afterwards (the QMDP rule). Without slip the plan is the beginning of a shortest path.

    Args:
        lake: The map.
        cell: Where the player stands; not an end.
        slip: Probability of not going where intended.
        num_actions: Longest plan, at least 1.
        actions_left: In the episode, at least 1; no plan is longer.

    Returns:
        At least 1 action; fewer than `num_actions` where the walk is then over for certain.
    """
    assert not lake.is_end(cell), "the walk has ended: there is nothing to plan"
    assert num_actions >= 1, "a plan of no actions is none"
    assert actions_left >= 1, "there are no actions left to plan"
    transitions = transition_probabilities(lake, slip)
    values = _values(lake, transitions, actions_left - 1)
    is_end = np.array([lake.is_end(at) for at in range(lake.num_cells)])
    belief = np.eye(lake.num_cells)[cell]
    plan: list[str] = []
    for left in range(actions_left - 1, max(actions_left - 1 - num_actions, -1), -1):
        beliefs = belief @ transitions
        # [A, H]: the success within `left` further actions; where that is equal, within one fewer, ...: do not dawdle.
        worth = np.round(beliefs @ values[left::-1].T, _DECIMALS).tolist()
        best = worth.index(max(worth))
        plan.append(ACTIONS[best])
        belief = beliefs[best]
        if belief[is_end].sum() > 1.0 - 10.0**-_DECIMALS:
            break
    return tuple(plan)


def _values(lake: LakeMap, transitions: np.ndarray, horizon: int) -> np.ndarray:
    values = np.zeros((horizon + 1, lake.num_cells))
    values[0, lake.goal] = 1.0
    for left in range(1, horizon + 1):
        values[left] = (transitions @ values[left - 1]).max(axis=0)
    return values
