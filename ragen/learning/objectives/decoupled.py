"""GDPO: the estimator that normalises each component of the reward by itself.

Legend: B trajectories, T tokens.
"""

import torch

from starpo.ragen.learning.objectives.columns import ScoredInputs
from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, group_mean, group_std
from starpo.ragen.learning.objectives.masks import ZERO_STD


def gdpo(inputs: ScoredInputs) -> AdvantageEstimate:
    """Sum of each component's return against its group, over its own deviation; the sum whitened (GDPO, 2601.05242).

        A_c = (R_c - mean over the group) / std over the group       for each component c of the reward
        A   = sum_c w_c A_c,  minus its mean over the update, over its std

    In a sum of rewards the component that varies most decides; here each has the same say, up to
    `options["weights"]` (1 by default). Deviations have ddof 0, where the public code has 1; one of at most 1e-6 counts
    as equal values, and the component then has no say. Means over the update are over trajectories.
    """
    weights = inputs.options.get("weights", {})
    total_B = torch.zeros_like(inputs.returns_B)
    for name, returns_B in inputs.component_returns.items():
        std_B = group_std(returns_B, inputs.group_B)
        centred_B = returns_B - group_mean(returns_B, inputs.group_B)
        total_B = total_B + weights.get(name, 1.0) * centred_B / torch.where(std_B > ZERO_STD, std_B, 1)
    std = total_B.std(correction=0)
    advantages_B = (total_B - total_B.mean()) / torch.where(std > ZERO_STD, std, 1)
    advantages_BT = torch.where(inputs.mask_BT, advantages_B[:, None], 0)
    return AdvantageEstimate(advantages_BT, None, group_mean(inputs.returns_B, inputs.group_B))
