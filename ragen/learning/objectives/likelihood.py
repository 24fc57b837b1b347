"""MaxRL: the estimator whose gradient is that of the likelihood of success.

Legend: B trajectories, T tokens.
"""

from dataclasses import replace

import torch

from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, AdvantageInputs, from_baselines, group_mean
from starpo.ragen.learning.objectives.masks import ZERO_STD


def maxrl(inputs: AdvantageInputs) -> AdvantageEstimate:
    """Return minus the group's mean return, over that mean, on every token (MaxRL, 2602.02710).

        A = (R - mean) / mean

    With returns of 0 and 1 the gradient is that of log p, p the probability of success, up to the order of the group's
    size: hard groups weigh more. A mean of at most 1e-6 gives 0, as a group without a success does. Returns that may be
    negative have no such likelihood, and a mean close to 0 makes their advantages large.
    """
    mean_B = group_mean(inputs.returns_B, inputs.group_B)
    estimate = from_baselines(inputs, mean_B)
    is_scaled_B1 = (mean_B > ZERO_STD)[:, None]
    scaled_BT = estimate.advantages_BT / torch.where(is_scaled_B1, mean_B[:, None], 1)
    return replace(estimate, advantages_BT=torch.where(is_scaled_B1, scaled_BT, 0))
