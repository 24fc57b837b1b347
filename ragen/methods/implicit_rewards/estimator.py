"""Advantages from the implicit rewards of a process reward model (PRM) (iStar, 2509.19199).

Legend: B trajectories, T tokens, K turns, N turns with tokens.
"""

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, AdvantageInputs, group_mean, group_std
from starpo.ragen.learning.objectives.masks import ZERO_STD


def istar(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Episode advantage plus the advantage of implicit step rewards (iStar, 2509.19199).

        A   = A^E + step_weight * A^S
        A^E = (R - mean) / std                   over the trajectories of the group
        A^S = (r_k - mean) / std                 over all turns of the group
        r_k = beta * sum_{t in turn k} (log PRM_t - log policy_t)

    Standard deviations have ddof 0; one of at most 1e-6 is replaced by 1. Only tokens in the mask, and turns with any,
    count. In the first updates r_k is what a single step of the PRM has changed, and standardising it enlarges the
    rounding of float32 log-probs: at a learning rate of 1e-6 that moves the gradient by a share of 1e-3 to 3e-3.
    """
    assert inputs.implicit_rewards_BT is not None, "this estimator needs a process reward model"
    episode_B = _standardised(inputs.returns_B, inputs.group_B)
    rewards_BK = inputs.turn_sums(inputs.implicit_rewards_BT)
    is_turn_BK = inputs.has_tokens()
    group_BK = inputs.group_B[:, None].expand_as(rewards_BK)
    step_BK = torch.zeros_like(rewards_BK)
    step_BK[is_turn_BK] = _standardised(rewards_BK[is_turn_BK], group_BK[is_turn_BK])
    advantages_BK = episode_B[:, None] + inputs.options.get("step_weight", 1.0) * step_BK
    return AdvantageEstimate(inputs.on_tokens(advantages_BK), None, inputs.returns_B - episode_B)


def _standardised(values_N: Tensor, group_N: Tensor) -> Tensor:
    """Standardise values within their groups, [N]."""
    std_N = group_std(values_N, group_N)
    return (values_N - group_mean(values_N, group_N)) / torch.where(std_N > ZERO_STD, std_N, 1)
