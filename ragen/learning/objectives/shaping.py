"""Shaping: the final transformations of advantages, in the order of the setting `update.shaping`.

    advantages (scaled, whitened) -> shaping -> ... -> advantages as they enter the loss

All have one signature, `(advantages_BT, AdvantageInputs) -> advantages_BT`, and keep values outside the mask at 0.

Legend: B trajectories, T tokens.
"""

from torch import Tensor

from starpo.ragen.learning.objectives.estimates import AdvantageInputs, group_std
from starpo.ragen.learning.objectives.masks import ZERO_STD


def zero(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Set advantages to 0, so that only KL and entropy act (RAGEN-2's control experiment without a task signal)."""
    return advantages_BT * 0


def asymmetric_clip(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Clip to [-1, 3], so that negative advantages push less than positive ones (RAGEN-2, `asym_clip`)."""
    return advantages_BT.clamp(-1, 3)


def by_length(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Divide by the trajectory's length relative to the mean length (RAGEN-2, `grpo_advantage_length_weight`).

    Lengths count tokens in the mask; the mean is over trajectories that have any.
    """
    length_B = inputs.mask_BT.sum(1).to(advantages_BT)
    mean = length_B.sum() / (length_B > 0).sum().clamp(min=1)
    return advantages_BT * (mean / length_B.clamp(min=1))[:, None]


def by_group_std(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Multiply by the std of the group's returns / (the largest such std + 1e-6): a soft filter that drops no group
    (RAGEN-2, `soft_advantage_reweight`)."""
    std_B = group_std(inputs.returns_B, inputs.group_B)
    return advantages_BT * (std_B / (std_B.max() + ZERO_STD))[:, None]


def by_kept_share(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Multiply by the share of groups that the filter kept (RAGEN-2, `filter_loss_scaling = linear`)."""
    return advantages_BT * inputs.kept_share


def by_root_kept_share(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Multiply by the root of the share of groups that the filter kept (RAGEN-2, `filter_loss_scaling = sqrt`)."""
    return advantages_BT * inputs.kept_share**0.5
