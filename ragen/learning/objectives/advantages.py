"""Estimators that compare whole trajectories: return minus a baseline, mostly the same on every token.

The division by a standard deviation is `ragen.learning.objectives.estimates.scale_advantages`.

Legend: B trajectories, T tokens.
"""

import torch

from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, AdvantageInputs, from_baselines, group_mean


def group_relative(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Return minus the mean return of the group, on every token (GRPO, 2402.03300; StarPO, 2504.20073, Eq. 5-6).

    It is invariant to a shift of a group's rewards. Dr. GRPO and REINFORCE++-baseline start from it too.
    """
    return from_baselines(inputs, group_mean(inputs.returns_B, inputs.group_B))


def batch_relative(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Return minus the mean return of all trajectories of the update, on every token (StarPO's text of Eq. 5; BRPO)."""
    return from_baselines(inputs, inputs.returns_B.mean().expand_as(inputs.returns_B))


def leave_one_out(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Return minus the mean return of the *other* members of the group, on every token (RLOO, 2402.14740, Eq. 9).

    The only member of a group has nothing to be compared with: its advantage is 0.
    """
    count_B = torch.bincount(inputs.group_B)[inputs.group_B]
    others_B = group_mean(inputs.returns_B, inputs.group_B) * count_B - inputs.returns_B
    return from_baselines(inputs, torch.where(count_B > 1, others_B / (count_B - 1).clamp(min=1), inputs.returns_B))


def raw_return(inputs: AdvantageInputs) -> AdvantageEstimate:
    """The return itself, on every token (REINFORCE; ARPO)."""
    return from_baselines(inputs, torch.zeros_like(inputs.returns_B))


def length_weighted(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Return minus the group's mean return weighted by length, on every token (OPO, 2505.23585, Eq. 9).

        b = sum_i len_i * R_i / sum_i len_i          len_i: tokens of the trajectory in the mask

    This baseline has minimum variance if the squared gradient of a trajectory is proportional to its length. A group
    without any token has baseline 0.
    """
    length_B = inputs.mask_BT.sum(1).to(inputs.returns_B)
    mean_length_B = group_mean(length_B, inputs.group_B)
    weighted_B = group_mean(length_B * inputs.returns_B, inputs.group_B)
    return from_baselines(inputs, torch.where(mean_length_B > 0, weighted_B / mean_length_B.clamp(min=1e-12), 0))


def greedy_baseline(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Return minus that of the group's greedy rollout, on every token (ReMax, 2310.10505, Alg. 2).

    A group whose greedy rollout ended in an error has nothing to be compared with: its advantages are 0.
    """
    assert inputs.greedy_returns_B is not None, "this estimator needs a greedy rollout of each group"
    return from_baselines(inputs, inputs.greedy_returns_B)


def reward_to_go(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Discounted reward to go of each token (REINFORCE++, 2501.03262, before its whitening over the batch).

    G_t = r_t + gamma * G_{t+1}
    """
    advantages_BT = torch.zeros_like(inputs.rewards_BT)
    to_go_B = torch.zeros_like(inputs.returns_B)
    for t in reversed(range(inputs.mask_BT.shape[1])):
        mask_B = inputs.mask_BT[:, t]
        to_go_B = torch.where(mask_B, inputs.rewards_BT[:, t] + inputs.gamma * to_go_B, to_go_B)
        advantages_BT[:, t] = torch.where(mask_B, to_go_B, 0)
    return AdvantageEstimate(advantages_BT, None, torch.zeros_like(inputs.returns_B))


def optimal_token_baseline(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Reward to go minus a baseline per token position, over the members of the group (OTB of verl).

        W_t = sum_{s <= t} (1 - 2 pi_s + sum_v pi_s(v)^2)      squared gradient norm of the logits, cumulative
        B_t = sum_i G_it W_it / sum_i W_it                     A_it = G_it - B_t

    Positions count a trajectory's tokens in the mask; the sums are over the members that are long enough. `G` is
    `reward_to_go`.
    """
    assert inputs.logprobs_BT is not None, "this estimator needs probabilities"
    assert inputs.collision_BT is not None, "this estimator needs probabilities"
    mask_BT = inputs.mask_BT
    energy_BT = 1 - 2 * inputs.logprobs_BT.exp() + inputs.collision_BT
    weight_BT = torch.where(mask_BT, energy_BT, 0).cumsum(1)
    to_go_BT = reward_to_go(inputs).advantages_BT
    place_BT = mask_BT.long().cumsum(1) - 1  # among the tokens of the mask
    key_N = (inputs.group_B[:, None] * mask_BT.shape[1] + place_BT)[mask_BT]
    weight_N, to_go_N = weight_BT[mask_BT], to_go_BT[mask_BT]
    num_keys = (int(inputs.group_B.max()) + 1) * max(mask_BT.shape[1], 1)
    total = weight_N.new_zeros(num_keys).index_add_(0, key_N, weight_N)
    weighted = weight_N.new_zeros(num_keys).index_add_(0, key_N, weight_N * to_go_N)
    baseline_N = (weighted / torch.where(total > 0, total, 1))[key_N]
    advantages_BT = torch.zeros_like(to_go_BT)
    advantages_BT[mask_BT] = to_go_N - baseline_N
    return AdvantageEstimate(advantages_BT, None, torch.zeros_like(inputs.returns_B))
