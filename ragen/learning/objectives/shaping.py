"""What is done to advantages last, in the order in which the settings name it (`update.shaping`).

    advantages (scaled, whitened) -> shaping -> ... -> advantages as they enter the loss

All have one signature, `(advantages_BT, AdvantageInputs) -> advantages_BT`, and leave what lies outside the mask at 0.

Legend: B trajectories, T tokens.
"""

from torch import Tensor

from starpo.ragen.learning.objectives.estimates import AdvantageInputs, group_std
from starpo.ragen.learning.objectives.masks import ZERO_STD


def zero(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """0: only KL and entropy act (RAGEN-2's control: what moves without a task?)."""
    return advantages_BT * 0


def asymmetric_clip(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Cut to [-1, 3]: what is bad pushes less than what is good (RAGEN-2, `asym_clip`)."""
    return advantages_BT.clamp(-1, 3)


def by_length(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Divided by the trajectory's tokens over their mean number (RAGEN-2, `grpo_advantage_length_weight`).

    The mean is over trajectories with tokens in the mask; the others have no advantage to divide.
    """
    length_B = inputs.mask_BT.sum(1).to(advantages_BT)
    mean = length_B.sum() / (length_B > 0).sum().clamp(min=1)
    return advantages_BT * (mean / length_B.clamp(min=1))[:, None]


def by_group_std(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Times the std of the group's returns over the largest one plus 1e-6: soft filtering, nothing is dropped (RAGEN-2,
    `soft_advantage_reweight`)."""
    std_B = group_std(inputs.returns_B, inputs.group_B)
    return advantages_BT * (std_B / (std_B.max() + ZERO_STD))[:, None]


def by_kept_share(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Times the share of the groups that the filter kept (RAGEN-2, `filter_loss_scaling = linear`)."""
    return advantages_BT * inputs.kept_share


def by_root_kept_share(advantages_BT: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Times the root of the share of the groups that the filter kept (RAGEN-2, `filter_loss_scaling = sqrt`)."""
    return advantages_BT * inputs.kept_share**0.5
