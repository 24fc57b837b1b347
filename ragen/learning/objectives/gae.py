"""Estimators with a critic: generalised advantage estimation over tokens, over turns, and over both.

`t + 1` is the next token in the mask; tokens in between (the environment's, and response tokens outside the mask) are
no decisions and are skipped. The value after the last token is 0, also for an episode cut by a limit: the limits on
turns and actions are part of the task, so that is its end.

Legend: B trajectories, T tokens, K turns.
"""

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, AdvantageInputs
from starpo.ragen.learning.objectives.masks import turn_ends, turn_starts


def gae(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Generalised advantage estimation over all response tokens of a trajectory (1506.02438, Eq. 16).

        delta_t = r_t + gamma * V_{t+1} - V_t
        A_t     = delta_t + gamma * lambda * A_{t+1}

    With gamma = lambda = 1, A_t is the sum of rewards from t onwards minus V_t.
    """
    values_BT = critic_values(inputs)
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

    With one turn this is GAE. Turn ends follow from the turn indices, so turns without a reward count like any other. A
    penalty (KL) on a token that does not end its turn acts within that turn.
    """
    values_BT = critic_values(inputs)
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


def turn_gae(inputs: AdvantageInputs) -> AdvantageEstimate:
    """GAE from turn to turn, with one value per turn; all its tokens share its advantage (VAGEN Lite; Turn-PPO,
    2512.17008).

        delta_k = r_k + gamma_turn * V_{k+1} - V_k
        A_k     = delta_k + gamma_turn * lambda_turn * A_{k+1}

    `r_k` is the sum of the rewards on the turn's tokens. `V_k` is the critic's value at its first token in the mask
    (before the response), or at its last one, by `options["value_at"]`. The critic is fitted to `A_k + V_k` at that
    token only.
    """
    values_BT = critic_values(inputs)
    edges = turn_starts if inputs.options.get("value_at", "first") == "first" else turn_ends
    is_read_BT = edges(inputs.turn_BT, inputs.mask_BT)
    values_BK = turn_values(values_BT, is_read_BT, inputs)
    advantages_BK = _over_turns(values_BK, inputs)
    advantages_BT = inputs.on_tokens(advantages_BK)
    targets_BT = torch.where(is_read_BT, advantages_BT + values_BT, 0)
    return AdvantageEstimate(advantages_BT, targets_BT, torch.zeros_like(inputs.returns_B), is_read_BT)


def _over_turns(values_BK: Tensor, inputs: AdvantageInputs) -> Tensor:
    """GAE over turns, [B, K]; turns without tokens are skipped, and their rewards are on the tokens before them."""
    rewards_BK, has_tokens_BK = inputs.turn_rewards(), inputs.has_tokens()
    advantages_BK = torch.zeros_like(values_BK)
    next_value_B = next_advantage_B = torch.zeros_like(inputs.returns_B)
    for k in reversed(range(values_BK.shape[1])):
        is_there_B = has_tokens_BK[:, k]
        ahead_B = inputs.gamma_turn * (next_value_B + inputs.lambda_turn * next_advantage_B)
        advantage_B = rewards_BK[:, k] + ahead_B - values_BK[:, k]
        next_value_B = torch.where(is_there_B, values_BK[:, k], next_value_B)
        next_advantage_B = torch.where(is_there_B, advantage_B, next_advantage_B)
        advantages_BK[:, k] = torch.where(is_there_B, advantage_B, 0)
    return advantages_BK


def turn_values(values_BT: Tensor, is_read_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Value at the one marked token of each turn, [B, K]; 0 for a turn without tokens."""
    values_BK = values_BT.new_zeros(len(values_BT), inputs.num_turns)
    index_BT = torch.where(is_read_BT, inputs.turn_BT, 0)
    return values_BK.scatter_add_(1, index_BT, torch.where(is_read_BT, values_BT, 0))


def critic_values(inputs: AdvantageInputs) -> Tensor:
    """The critic's values, [B, T], which the estimator needs."""
    assert inputs.values_BT is not None, "this estimator needs a critic's values"
    return inputs.values_BT


def _with_critic(advantages_BT: Tensor, values_BT: Tensor, inputs: AdvantageInputs) -> AdvantageEstimate:
    targets_BT = torch.where(inputs.mask_BT, advantages_BT + values_BT, 0)
    return AdvantageEstimate(advantages_BT, targets_BT, torch.zeros_like(inputs.returns_B))
