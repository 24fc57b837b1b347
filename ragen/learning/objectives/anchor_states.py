"""Estimators that compare turns which started from the same state of the environment.

Members of a group share their initial state and often reach a state that another member visited. The turns from such an
anchor state can be compared by what followed them, without a critic.

Legend: B trajectories, T tokens, K turns.
"""

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, AdvantageInputs, group_mean, group_std
from starpo.ragen.learning.objectives.masks import ZERO_STD


def gigpo(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Episode advantage plus step advantage within anchor states (GiGPO, 2505.10978, Eq. 3-8).

        A   = A^E + step_weight * A^S
        A^E = (R - mean over the group) / F
        A^S = (R_k - mean over turns of the group in the same state) / F,    R_k = sum_j gamma_turn^(j-k) r_j

    F is 1, or with `options["normaliser"] = "std"` the standard deviation (ddof 1) over the same set plus 1e-6. A turn
    whose state no other turn of the group met has A^S = 0. The public code takes the mean in A^E over turns, so that
    long episodes weigh more; `options["over"]` is 'episodes' (default) or 'turns' (the public code).
    """
    episode_B = _episode_advantage(inputs)
    step_BK = _step_advantage(inputs, _codes(inputs, 1))
    advantages_BK = episode_B[:, None] + inputs.options.get("step_weight", 1.0) * step_BK
    return AdvantageEstimate(inputs.on_tokens(advantages_BK), None, inputs.returns_B - episode_B)


def hgpo(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Anchor states distinguished by their history: step advantages averaged over depths (HGPO, verl-agent).

        A^S = sum_d w_d * A^S_d,   w_d proportional to d^alpha over the depths at which the turn's cluster has others

    At depth d, turns with the same last d states form a cluster (`options["depth"]` depths; depth 1 is GiGPO). A turn
    with fewer than d states so far is in no cluster at depth d. The rest is as in `gigpo`.
    """
    depth, alpha = inputs.options.get("depth", 3), inputs.options.get("alpha", 1.0)
    episode_B = _episode_advantage(inputs)
    total_BK = weight_BK = torch.zeros(len(inputs.returns_B), inputs.num_turns, dtype=inputs.returns_B.dtype)
    for d in range(1, depth + 1):
        codes_BK = _codes(inputs, d)
        weight = (_company(codes_BK) > 1).to(total_BK) * d**alpha
        total_BK = total_BK + weight * _step_advantage(inputs, codes_BK)
        weight_BK = weight_BK + weight
    step_BK = total_BK / torch.where(weight_BK > 0, weight_BK, 1)
    advantages_BK = episode_B[:, None] + inputs.options.get("step_weight", 1.0) * step_BK
    return AdvantageEstimate(inputs.on_tokens(advantages_BK), None, inputs.returns_B - episode_B)


def _episode_advantage(inputs: AdvantageInputs) -> Tensor:
    """A^E, [B]."""
    returns_B, group_B = inputs.returns_B, inputs.group_B
    rows_B = torch.arange(len(returns_B))
    if inputs.options.get("over", "episodes") == "turns":
        rows_B = rows_B.repeat_interleave(inputs.has_tokens().sum(1))
    mean_G, std_G = _statistics(returns_B[rows_B], group_B[rows_B], int(group_B.max()) + 1)
    centred_B = returns_B - mean_G[group_B]
    return centred_B / (std_G[group_B] + ZERO_STD) if inputs.options.get("normaliser", "none") == "std" else centred_B


def _step_advantage(inputs: AdvantageInputs, codes_BK: Tensor) -> Tensor:
    """A^S within clusters of turns, [B, K]; 0 for a turn alone in its cluster or in none (code -1)."""
    to_go_BK = inputs.turn_rewards()
    for k in reversed(range(inputs.num_turns - 1)):
        to_go_BK[:, k] += inputs.gamma_turn * to_go_BK[:, k + 1]
    is_met_BK = codes_BK >= 0
    codes_N, to_go_N = codes_BK[is_met_BK], to_go_BK[is_met_BK]
    advantages_BK = torch.zeros_like(to_go_BK)
    if not len(codes_N):
        return advantages_BK
    mean_C, std_C = _statistics(to_go_N, codes_N, int(codes_N.max()) + 1)
    centred_N = to_go_N - mean_C[codes_N]
    if inputs.options.get("normaliser", "none") == "std":
        centred_N = centred_N / (std_C[codes_N] + ZERO_STD)
    advantages_BK[is_met_BK] = centred_N
    return advantages_BK


def _statistics(values_N: Tensor, set_N: Tensor, num_sets: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (ddof 1; 0 for a single value) of each set of values."""
    mean, std = values_N.new_zeros(num_sets), values_N.new_zeros(num_sets)
    mean[set_N] = group_mean(values_N, set_N)
    std[set_N] = group_std(values_N, set_N, 1)
    return mean, std


def _codes(inputs: AdvantageInputs, depth: int) -> Tensor:
    """Cluster code of each turn, [B, K]: equal for turns of a group with the same last `depth` states.

    -1 for turns without tokens, and for those with fewer states so far.
    """
    assert inputs.state_BK is not None, "this estimator needs the states of the environment"
    num_turns = inputs.num_turns
    history_BKD = torch.stack([_shifted(inputs.state_BK[:, :num_turns], by) for by in range(depth)], dim=-1)
    group_BK = inputs.group_B[:, None].expand(-1, num_turns)
    keys = torch.cat([group_BK[..., None], history_BKD], dim=-1)
    codes_BK = torch.unique(keys.flatten(0, 1), dim=0, return_inverse=True)[1].reshape(group_BK.shape)
    return torch.where(inputs.has_tokens() & (history_BKD >= 0).all(-1), codes_BK, -1)


def _shifted(state_BK: Tensor, by: int) -> Tensor:
    """State `by` turns earlier, [B, K]; -1 if there is none."""
    before_BK = state_BK.new_full((len(state_BK), min(by, state_BK.shape[1])), -1)
    return torch.cat([before_BK, state_BK[:, : state_BK.shape[1] - before_BK.shape[1]]], dim=1)


def _company(codes_BK: Tensor) -> Tensor:
    """Number of turns with each turn's code, [B, K]; 0 for code -1."""
    count = torch.bincount((codes_BK + 1).flatten())
    return torch.where(codes_BK >= 0, count[codes_BK + 1], 0)
