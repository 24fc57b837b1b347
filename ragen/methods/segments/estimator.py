"""Advantage estimator over the segments into which subgoals divide a trajectory.

Legend: B trajectories, T tokens, K turns.
"""

import torch

from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, AdvantageInputs
from starpo.ragen.learning.objectives.gae import critic_values, turn_values
from starpo.ragen.learning.objectives.masks import turn_starts


def names_subgoal(trajectory: Trajectory) -> list[bool]:
    """Whether the reasoning of each turn names a subgoal, `<subgoal>`. [K]"""
    return ["<subgoal>" in (text or "") for text in trajectory.reasoning]


def hierarchical_gae(inputs: AdvantageInputs) -> AdvantageEstimate:
    """GAE within and between subgoals (HiPER's hierarchical advantage estimation, 2602.16165).

    Segments begin at the first turn and wherever the reasoning names a subgoal. V_k is the value at a turn's first
    token. Within a segment, where the next value of its last turn is that of the next segment's first turn:

        low:   delta_k = r_k + gamma_turn * V_{k+1} - V_k           A_k = delta_k + gamma_turn * lambda_turn * A_{k+1}

    and from segment j to the next one j', d turns later, with R_j the discounted rewards in between:

        high:  delta_j = R_j + gamma_turn^d * V_j' - V_j            A_j = delta_j + gamma_turn^d * lambda_turn * A_j'

    Answers get the low advantage. Outside the answer, a segment's first turn, whose reasoning chooses the subgoal, gets
    the high one, and other turns the low one. The public code has a second value head for the high level, and special
    tokens for switching and for the subgoal. Here, both levels read one critic, fitted to the targets of the low level
    at each turn's first token.
    """
    values_BT = critic_values(inputs)
    assert inputs.marks_BK is not None, "this estimator needs to know where subgoals begin"
    assert inputs.is_answer_BT is not None, "this estimator needs to know which tokens are the answer"
    is_read_BT = turn_starts(inputs.turn_BT, inputs.mask_BT)
    values_BK = turn_values(values_BT, is_read_BT, inputs)
    rewards_BK, has_tokens_BK = inputs.turn_rewards(), inputs.has_tokens()
    starts_BK = inputs.marks_BK[:, : inputs.num_turns] > 0
    starts_BK |= has_tokens_BK & (has_tokens_BK.cumsum(1) == 1)  # the first turn with tokens begins a subgoal

    gamma, gamma_lambda = inputs.gamma_turn, inputs.gamma_turn * inputs.lambda_turn
    low_BK, high_BK = torch.zeros_like(values_BK), torch.zeros_like(values_BK)
    zeros_B = torch.zeros_like(inputs.returns_B)
    next_value_B, next_low_B, between_B, next_high_value_B, next_high_B = (zeros_B,) * 5
    discount_B, starts_next_B = torch.ones_like(zeros_B), torch.ones_like(zeros_B, dtype=torch.bool)
    for k in reversed(range(inputs.num_turns)):
        is_there_B, value_B = has_tokens_BK[:, k], values_BK[:, k]
        low_B = rewards_BK[:, k] + gamma * next_value_B - value_B
        low_B = low_B + torch.where(starts_next_B, 0, gamma_lambda * next_low_B)
        between_B = torch.where(is_there_B, rewards_BK[:, k] + gamma * between_B, between_B)
        discount_B = torch.where(is_there_B, gamma * discount_B, discount_B)
        high_B = between_B + discount_B * (next_high_value_B + inputs.lambda_turn * next_high_B) - value_B
        low_BK[:, k], high_BK[:, k] = torch.where(is_there_B, low_B, 0), torch.where(is_there_B, high_B, 0)
        is_start_B = starts_BK[:, k] & is_there_B
        next_high_value_B = torch.where(is_start_B, value_B, next_high_value_B)
        next_high_B = torch.where(is_start_B, high_B, next_high_B)
        between_B, discount_B = torch.where(is_start_B, 0, between_B), torch.where(is_start_B, 1, discount_B)
        next_value_B, next_low_B = (
            torch.where(is_there_B, new, old) for new, old in ((value_B, next_value_B), (low_B, next_low_B))
        )
        starts_next_B = torch.where(is_there_B, starts_BK[:, k], starts_next_B)
    chooses_BT = inputs.on_tokens(starts_BK.double()).bool() & ~inputs.is_answer_BT
    advantages_BT = torch.where(chooses_BT, inputs.on_tokens(high_BK), inputs.on_tokens(low_BK))
    targets_BT = torch.where(is_read_BT, inputs.on_tokens(low_BK) + values_BT, 0)
    return AdvantageEstimate(advantages_BT, targets_BT, torch.zeros_like(inputs.returns_B), is_read_BT)
