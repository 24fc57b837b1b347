"""Importance weights of tokens by their sequence: how likely the learner's policy makes what another policy sampled.

    old log-probs - behaviour log-probs -> ratio of the unit -> bounds -> weight of each token in the surrogate

The plain weight of a token, truncated, is `losses.truncated_importance`. No gradient flows into a weight.

Legend: N tokens.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.kl import LARGEST_LOG_RATIO
from starpo.ragen.learning.objectives.ratios import geometric_ratio, log_ratio, token_ratio


def product_ratio(log_ratio_N: Tensor, sequence_N: Tensor) -> Tensor:
    """Product of the token ratios of a sequence: its full importance weight. The log is clamped to +-20."""
    _, index_N = torch.unique(sequence_N, return_inverse=True)
    sum_S = log_ratio_N.new_zeros(int(index_N.max()) + 1 if len(index_N) else 0).index_add_(0, index_N, log_ratio_N)
    return sum_S.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()[index_N]


UNITS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "token": token_ratio,
    "sequence": product_ratio,
    "sequence_geometric": geometric_ratio,
}
"""Name used in settings -> weight of each token before the bounds."""


def importance_weights(
    old_logprobs_N: Tensor,
    behaviour_logprobs_N: Tensor,
    sequence_N: Tensor,
    unit: str,
    cap: float,
    floor: float | None,
    outside: str,
) -> tuple[Tensor, Tensor]:
    """Compute the weight of each token, `w = pi_old / mu` of its unit, within bounds.

        truncate    clip(w, floor, cap)               truncated importance sampling (Yao et al. 2025)
        mask        w if floor <= w <= cap, else 0    masked importance sampling; with a floor, IcePop (Ring team 2025)

    Over a sequence w is the product of its tokens' ratios, which is unbiased, or their geometric mean, whose size does
    not depend on the length (TRL and verl, `rollout_corr_helper.py`; Trust Region Masking, 2512.23075, masks sequences
    by such a number). A masked token stays in the denominator of the loss.

    Args:
        old_logprobs_N: Log-probs under the policy before the first step, nats.
        behaviour_logprobs_N: Log-probs under the policy that sampled, nats.
        sequence_N: int; sequence of each token.
        unit: A name of `UNITS`.
        cap: Largest weight.
        floor: Smallest weight; None for 0.
        outside: 'truncate' or 'mask'.

    Returns:
        The weights [N], and whether each was outside the bounds. bool [N]
    """
    weight_N = UNITS[unit](log_ratio(old_logprobs_N, behaviour_logprobs_N), sequence_N).detach()
    low = 0.0 if floor is None else floor
    is_outside_N = (weight_N < low) | (weight_N > cap)
    bounded_N = weight_N.clamp(low, cap) if outside == "truncate" else torch.where(is_outside_N, 0.0, weight_N)
    return bounded_N, is_outside_N
