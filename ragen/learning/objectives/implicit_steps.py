"""Turn rewards from an implicit process reward model (PRM), trained on preferences within groups (iStar).

    returns of a group -> pairs -> `preference_loss` -> the PRM's gradient
    log-probs of PRM and policy -> implicit rewards of turns -> `istar` -> advantages

Legend: B trajectories, T tokens, K turns, N turns with tokens, P pairs.
"""

import torch
import torch.nn.functional as F
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


def preference_loss(rewards_B: Tensor, pairs_P2: Tensor) -> Tensor:
    """Mean of `-log sigmoid(r_better - r_worse)` over pairs (iStar's trajectory DPO; Bradley and Terry).

    Args:
        rewards_B: Implicit rewards of whole trajectories, `beta * (log PRM - log policy)`, as compared in DPO.
        pairs_P2: int; (better, worse) trajectories, from `preferences`. At least one pair.

    Returns:
        Scalar, nats per pair; log 2 if the PRM equals the policy.
    """
    return F.softplus(rewards_B[pairs_P2[:, 1]] - rewards_B[pairs_P2[:, 0]]).mean()


def preferences(returns_B: Tensor, group_B: Tensor, has_tokens_B: Tensor) -> Tensor:
    """Return all pairs of members of a group whose returns differ, the better one first. int [P, 2]

    Args:
        returns_B: Return of each trajectory.
        group_B: int; index of its group.
        has_tokens_B: bool; trajectories without tokens are in no pair.
    """
    is_better_BB = returns_B[:, None] > returns_B[None, :] + ZERO_STD
    is_pair_BB = (group_B[:, None] == group_B[None, :]) & has_tokens_B[:, None] & has_tokens_B[None, :]
    return torch.nonzero(is_better_BB & is_pair_BB)


def _standardised(values_N: Tensor, group_N: Tensor) -> Tensor:
    """Standardise values within their groups, [N]."""
    std_N = group_std(values_N, group_N)
    return (values_N - group_mean(values_N, group_N)) / torch.where(std_N > ZERO_STD, std_N, 1)
