"""Advantage estimators: how much better each token was than expected.

All have one signature, `AdvantageInputs -> AdvantageEstimate`, so that a learner needs no estimator's name. Each
reads what it needs; those with a critic read rewards and values token by token, the others returns and groups.

    rewards + values + structure -> estimator -> scale -> advantages of the response tokens

Legend: B trajectories, T tokens (all response tokens of a trajectory in time order, over all its segments), G groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.masks import ZERO_STD, bessel, turn_ends

AdvantageScale = Literal["none", "group", "batch"]


@dataclass(frozen=True)
class AdvantageInputs:
    """What estimators may read. Nothing outside `mask_BT` matters.

    Attributes:
        returns_B: float; the return of each trajectory, penalties included.
        group_B: int; index of its group, 0 .. G-1.
        rewards_BT: float; a turn's reward on its last response token, a token's own penalties (KL) on the token.
        mask_BT: bool; the response tokens. Holes between them are allowed.
        turn_BT: int; the turn each response token belongs to, never falling along a row.
        values_BT: float; the critic's value of the state before each token. None: there is no critic.
        gamma: Discount from token to token.
        gae_lambda: GAE's lambda from token to token.
        gamma_turn: Discount from turn to turn.
        lambda_turn: GAE's lambda from turn to turn.
        options: Settings of an estimator's own (`update.advantage_options`), checked by its model.
    """

    returns_B: Tensor
    group_B: Tensor
    rewards_BT: Tensor
    mask_BT: Tensor
    turn_BT: Tensor
    values_BT: Tensor | None = None
    gamma: float = 1.0
    gae_lambda: float = 1.0
    gamma_turn: float = 1.0
    lambda_turn: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.returns_B.shape == self.group_B.shape == self.mask_BT.shape[:1]
        assert self.rewards_BT.shape == self.turn_BT.shape == self.mask_BT.shape
        assert self.values_BT is None or self.values_BT.shape == self.mask_BT.shape
        assert self.mask_BT.dtype == torch.bool


@dataclass(frozen=True)
class AdvantageEstimate:
    """What an estimator returns.

    Attributes:
        advantages_BT: float; 0 outside the mask.
        value_targets_BT: float; what the critic should have said, advantage + value; 0 outside the mask. None: the
            estimator has no use for a critic.
        baselines_B: float; what was subtracted from each trajectory's return; 0 where values were subtracted instead.
    """

    advantages_BT: Tensor
    value_targets_BT: Tensor | None
    baselines_B: Tensor


def gae(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Generalised advantage estimation over all response tokens of a trajectory (1506.02438, Eq. 16).

        delta_t = r_t + gamma * V_{t+1} - V_t
        A_t     = delta_t + gamma * lambda * A_{t+1}

    `t + 1` is the next response token, whatever lies between: the environment's tokens are no decisions. After the last
    one the value is 0, also where a limit cut the episode: within limits on turns and actions, that is its end. With
    gamma = lambda = 1, A_t is the sum of rewards from t on, minus V_t.
    """
    values_BT = _values(inputs)
    advantages_BT = torch.zeros_like(values_BT)
    next_value_B = next_advantage_B = torch.zeros_like(values_BT[:, :1]).sum(1)
    for t in reversed(range(values_BT.shape[1])):
        mask_B = inputs.mask_BT[:, t]
        delta_B = inputs.rewards_BT[:, t] + inputs.gamma * next_value_B - values_BT[:, t]
        advantage_B = delta_B + inputs.gamma * inputs.gae_lambda * next_advantage_B
        next_value_B = torch.where(mask_B, values_BT[:, t], next_value_B)
        next_advantage_B = torch.where(mask_B, advantage_B, next_advantage_B)
        advantages_BT[:, t] = torch.where(mask_B, advantage_B, 0)
    return _with_critic(advantages_BT, values_BT, inputs)


def bi_level_gae(inputs: AdvantageInputs) -> AdvantageEstimate:
    """GAE from turn to turn, then from token to token inside each turn (VAGEN, Bi-Level GAE).

    With `e(k)` the last response token of turn k:

        A_{e(k)} = r_{e(k)} + gamma_turn * V_{e(k+1)} - V_{e(k)} + gamma_turn * lambda_turn * A_{e(k+1)}
        A_t      = r_t      + gamma      * V_{t+1}    - V_t      + gamma      * lambda      * A_{t+1}     (other tokens)

    With one turn this is GAE. Turn ends come from the turn indices, so turns that earn nothing are turns like any
    other. A penalty on a token that does not end its turn (KL) acts within that turn.
    """
    values_BT = _values(inputs)
    is_end_BT = turn_ends(inputs.turn_BT, inputs.mask_BT)
    advantages_BT = torch.zeros_like(values_BT)
    zeros_B = torch.zeros_like(values_BT[:, :1]).sum(1)
    next_value_B, next_advantage_B, end_value_B, end_advantage_B = zeros_B, zeros_B, zeros_B, zeros_B
    for t in reversed(range(values_BT.shape[1])):
        mask_B, is_end_B, value_B = inputs.mask_BT[:, t], is_end_BT[:, t], values_BT[:, t]
        ahead_of_turn_B = inputs.gamma_turn * (end_value_B + inputs.lambda_turn * end_advantage_B)
        ahead_of_token_B = inputs.gamma * (next_value_B + inputs.gae_lambda * next_advantage_B)
        ahead_B = torch.where(is_end_B, ahead_of_turn_B, ahead_of_token_B)
        advantage_B = inputs.rewards_BT[:, t] + ahead_B - value_B
        end_value_B = torch.where(is_end_B, value_B, end_value_B)
        end_advantage_B = torch.where(is_end_B, advantage_B, end_advantage_B)
        next_value_B = torch.where(mask_B, value_B, next_value_B)
        next_advantage_B = torch.where(mask_B, advantage_B, next_advantage_B)
        advantages_BT[:, t] = torch.where(mask_B, advantage_B, 0)
    return _with_critic(advantages_BT, values_BT, inputs)


def group_relative(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Return minus the mean return of the group, on every token (GRPO, 2402.03300; StarPO, 2504.20073, Eq. 5-6).

    The division by a standard deviation is `scale_advantages`. A shift of a group's rewards changes nothing.
    """
    return _shared(inputs, baselines_B=_group_mean(inputs.returns_B, inputs.group_B))


def batch_relative(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Return minus the mean return of all trajectories of the update, on every token (StarPO's text of Eq. 5; BRPO)."""
    return _shared(inputs, baselines_B=inputs.returns_B.mean().expand_as(inputs.returns_B))


def leave_one_out(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Return minus the mean return of the *other* members of the group, on every token (RLOO, 2402.14740, Eq. 9).

    A member without others has nothing to be compared with: its advantage is 0.
    """
    count_B = torch.bincount(inputs.group_B)[inputs.group_B]
    others_B = _group_mean(inputs.returns_B, inputs.group_B) * count_B - inputs.returns_B
    return _shared(
        inputs, baselines_B=torch.where(count_B > 1, others_B / (count_B - 1).clamp(min=1), inputs.returns_B)
    )


def raw_return(inputs: AdvantageInputs) -> AdvantageEstimate:
    """The return itself, on every token (REINFORCE; ARPO)."""
    return _shared(inputs, baselines_B=torch.zeros_like(inputs.returns_B))


def scale_advantages(
    estimate: AdvantageEstimate, inputs: AdvantageInputs, scale: AdvantageScale, ddof: int = 0
) -> Tensor:
    """Divide advantages by a standard deviation of returns.

    Args:
        estimate: Of any estimator.
        inputs: What it was made from.
        scale: 'none' divides by nothing; 'group' by the deviation of the group's returns (GRPO); 'batch' by that of
            `returns - baselines` over all trajectories of the update.
        ddof: Of that deviation; 1 in the public code, which also adds 1e-6 to it.

    Returns:
        [B, T]; a deviation of at most 1e-6 divides by 1: such returns are equal, so there is nothing to scale.
    """
    if scale == "none":
        return estimate.advantages_BT
    if scale == "group":
        centred_B = inputs.returns_B - _group_mean(inputs.returns_B, inputs.group_B)
        count_B = torch.bincount(inputs.group_B)[inputs.group_B]
        std_B = (_group_mean(centred_B.square(), inputs.group_B) * bessel(count_B, ddof)).sqrt()
    else:
        centred_B = inputs.returns_B - estimate.baselines_B
        std = centred_B.std(correction=0) * bessel(torch.tensor(len(centred_B)), ddof).sqrt()
        std_B = std.expand_as(centred_B)
    return estimate.advantages_BT / torch.where(std_B > ZERO_STD, std_B, 1)[:, None]


def _values(inputs: AdvantageInputs) -> Tensor:
    assert inputs.values_BT is not None, "this estimator needs a critic's values"
    return inputs.values_BT


def _with_critic(advantages_BT: Tensor, values_BT: Tensor, inputs: AdvantageInputs) -> AdvantageEstimate:
    targets_BT = torch.where(inputs.mask_BT, advantages_BT + values_BT, 0)
    return AdvantageEstimate(advantages_BT, targets_BT, torch.zeros_like(inputs.returns_B))


def _shared(inputs: AdvantageInputs, baselines_B: Tensor) -> AdvantageEstimate:
    advantages_B = inputs.returns_B - baselines_B
    return AdvantageEstimate(torch.where(inputs.mask_BT, advantages_B[:, None], 0), None, baselines_B)


def _group_mean(values_B: Tensor, group_B: Tensor) -> Tensor:
    """Mean over each trajectory's group, [B]."""
    count_G = torch.bincount(group_B).clamp(min=1)
    sum_G = values_B.new_zeros(len(count_G)).index_add_(0, group_B, values_B)
    return (sum_G / count_G)[group_B]
