"""Inputs and outputs of advantage estimators.

    rewards + values + structure -> estimator -> scale -> advantages of the response tokens

All estimators have one signature, `AdvantageInputs -> AdvantageEstimate`, so that a learner does not depend on any one.
Each reads what it needs; its required inputs are declared where it is registered (`ragen.core.registry.ADVANTAGES`).

Legend: B trajectories, T tokens (all response tokens of a trajectory in time order, over all its segments), K turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.masks import ZERO_STD, bessel

AdvantageScale = Literal["none", "group", "batch"]


@dataclass(frozen=True)
class AdvantageInputs:
    """Inputs of estimators. Values outside `mask_BT` are ignored.

    Attributes:
        returns_B: float; return of each trajectory, penalties included.
        group_B: int; index of its group, 0 .. G-1.
        rewards_BT: float; a turn's reward on its last token in the mask, a token's own penalties (KL) on the token.
        mask_BT: bool; the response tokens that take part. Holes between them are allowed.
        turn_BT: int; turn that each response token belongs to, non-decreasing along a row.
        values_BT: float; the critic's value of the state before each token. None without a critic.
        state_BK: int; code of the environment's state before each turn; equal codes mean equal states, -1 means no such
            turn. None if states are unknown.
        is_answer_BT: bool; tokens of the answer, without its tags. None if unknown.
        marks_BK: float; what the estimator's own `marks` says of each turn (docs/extend.md). None if it has none.
        greedy_returns_B: float; return of the greedy rollout of the trajectory's group. None without greedy rollouts.
        logprobs_BT: float; log-probability of each token under the policy that is updated. None if not given.
        collision_BT: float; sum of squared probabilities of the distribution at its position. None if not given.
        implicit_rewards_BT: float; beta * (log-probability of each token under the process reward model - that under
            the policy). None without such a model.
        kept_share: Share of the played groups that are trained on.
        gamma: Discount from token to token.
        gae_lambda: GAE's lambda from token to token.
        gamma_turn: Discount from turn to turn.
        lambda_turn: GAE's lambda from turn to turn.
        options: Settings specific to an estimator (`update.advantage_options`), validated by its model.
    """

    returns_B: Tensor
    group_B: Tensor
    rewards_BT: Tensor
    mask_BT: Tensor
    turn_BT: Tensor
    values_BT: Tensor | None = None
    state_BK: Tensor | None = None
    is_answer_BT: Tensor | None = None
    marks_BK: Tensor | None = None
    greedy_returns_B: Tensor | None = None
    logprobs_BT: Tensor | None = None
    collision_BT: Tensor | None = None
    implicit_rewards_BT: Tensor | None = None
    kept_share: float = 1.0
    gamma: float = 1.0
    gae_lambda: float = 1.0
    gamma_turn: float = 1.0
    lambda_turn: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.returns_B.shape == self.group_B.shape == self.mask_BT.shape[:1]
        assert self.rewards_BT.shape == self.turn_BT.shape == self.mask_BT.shape
        of_tokens = self.values_BT, self.is_answer_BT, self.logprobs_BT, self.collision_BT, self.implicit_rewards_BT
        for given in of_tokens:
            assert given is None or given.shape == self.mask_BT.shape
        assert self.state_BK is None or len(self.state_BK) == len(self.returns_B)
        assert self.mask_BT.dtype == torch.bool

    @property
    def num_turns(self) -> int:
        """K: turns of the longest trajectory, up to its last turn with tokens; at least 1."""
        return int(torch.where(self.mask_BT, self.turn_BT, 0).max()) + 1 if self.mask_BT.numel() else 1

    def turn_rewards(self) -> Tensor:
        """Sum of the rewards on each turn's tokens, [B, K]."""
        return self.turn_sums(self.rewards_BT)

    def turn_sums(self, values_BT: Tensor) -> Tensor:
        """Sum over each turn's tokens in the mask, [B, K]."""
        sums_BK = values_BT.new_zeros(len(self.returns_B), self.num_turns)
        return sums_BK.scatter_add_(1, self._turn_index(), torch.where(self.mask_BT, values_BT, 0))

    def has_tokens(self) -> Tensor:
        """Whether each turn has tokens in the mask. bool [B, K]"""
        count_BK = torch.zeros(len(self.returns_B), self.num_turns, dtype=torch.int64)
        return count_BK.scatter_add_(1, self._turn_index(), self.mask_BT.long()) > 0

    def on_tokens(self, values_BK: Tensor) -> Tensor:
        """Broadcast each turn's value to all of its tokens, [B, T]; 0 outside the mask."""
        return torch.where(self.mask_BT, values_BK.gather(1, self._turn_index()), 0)

    def _turn_index(self) -> Tensor:
        return torch.where(self.mask_BT, self.turn_BT, 0)


@dataclass(frozen=True)
class AdvantageEstimate:
    """Output of an estimator.

    Attributes:
        advantages_BT: float; 0 outside the mask.
        value_targets_BT: float; targets of the critic, 0 where it is not fitted. None for estimators without a critic.
        baselines_B: float; baseline subtracted from each trajectory's return; 0 if values were subtracted instead.
        value_mask_BT: bool; tokens at which the critic is fitted. None for all of the mask.
    """

    advantages_BT: Tensor
    value_targets_BT: Tensor | None
    baselines_B: Tensor
    value_mask_BT: Tensor | None = None


def scale_advantages(
    estimate: AdvantageEstimate, inputs: AdvantageInputs, scale: AdvantageScale, ddof: int = 0
) -> Tensor:
    """Divide advantages by a standard deviation of returns.

    Args:
        estimate: Output of any estimator.
        inputs: Its inputs.
        scale: 'none' for no division; 'group' for the standard deviation of the group's returns (GRPO); 'batch' for
            that of `returns - baselines` over all trajectories of the update.
        ddof: Delta degrees of freedom of that deviation; 1 in the public code, which also adds 1e-6 to it.

    Returns:
        [B, T]. A deviation of at most 1e-6 is replaced by 1: such returns count as equal.
    """
    if scale == "none":
        return estimate.advantages_BT
    if scale == "group":
        std_B = group_std(inputs.returns_B, inputs.group_B, ddof)
    else:
        centred_B = inputs.returns_B - estimate.baselines_B
        std = centred_B.std(correction=0) * bessel(torch.tensor(len(centred_B)), ddof).sqrt()
        std_B = std.expand_as(centred_B)
    return estimate.advantages_BT / torch.where(std_B > ZERO_STD, std_B, 1)[:, None]


def from_baselines(inputs: AdvantageInputs, baselines_B: Tensor) -> AdvantageEstimate:
    """Build the estimate `return - baseline`, on every token of a trajectory."""
    advantages_B = inputs.returns_B - baselines_B
    return AdvantageEstimate(torch.where(inputs.mask_BT, advantages_B[:, None], 0), None, baselines_B)


def group_mean(values_B: Tensor, group_B: Tensor) -> Tensor:
    """Mean over each row's group, [B]."""
    count_G = torch.bincount(group_B).clamp(min=1)
    sum_G = values_B.new_zeros(len(count_G)).index_add_(0, group_B, values_B)
    return (sum_G / count_G)[group_B]


def group_std(values_B: Tensor, group_B: Tensor, ddof: int = 0) -> Tensor:
    """Standard deviation over each row's group, [B]; 0 for a group of one."""
    centred_B = values_B - group_mean(values_B, group_B)
    count_B = torch.bincount(group_B)[group_B]
    return (group_mean(centred_B.square(), group_B) * bessel(count_B, ddof)).sqrt()
