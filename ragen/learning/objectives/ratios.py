"""Probability ratios between the policy and an older one: of a token, a turn or a sequence.

    log-probs -> log-ratio of each token -> ratio of the unit that is clipped

The ratio of a unit is repeated on each of its tokens: the value is the unit's, while the gradient flows through the
token (GSPO-token, 2507.18071, Eq. 13), so that the tokens of a unit may have different advantages. If they share one
and have equal weights in the loss, the result is the gradient of the unit's own term. The weights of search
(`objectives.chosen`) differ between the turns of a sequence: the gradient is then another one, in which each turn's
tokens count by their own weight.

Legend: M tokens.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.kl import LARGEST_LOG_RATIO


def log_ratio(policy_logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """`log pi_theta - log pi_old` of each token, clamped to +-20, beyond which the gradient is 0. Any shape."""
    return (policy_logprobs - old_logprobs).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def probability_ratio(policy_logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """`rho = pi_theta / pi_old` of each token; log-ratios are clamped to +-20, beyond which the gradient is 0."""
    return log_ratio(policy_logprobs, old_logprobs).exp()


def token_ratio(log_ratio_M: Tensor, unit_M: Tensor) -> Tensor:
    """Ratio of each token by itself (PPO, 1707.06347). Units are not read."""
    return log_ratio_M.exp()


def geometric_ratio(log_ratio_M: Tensor, unit_M: Tensor) -> Tensor:
    """Geometric mean of the token ratios of a unit: `exp(mean log rho)` (GSPO, 2507.18071, Eq. 7; ST-PPO, 2511.20718).

    Args:
        log_ratio_M: Log-ratio of each token.
        unit_M: int; unit that each token belongs to. Any numbers.

    Returns:
        [M]; the gradient with respect to a token's log-prob is the ratio.
    """
    return unit_mean(log_ratio_M.detach(), unit_M).exp() * (log_ratio_M - log_ratio_M.detach()).exp()


def arithmetic_ratio(log_ratio_M: Tensor, unit_M: Tensor) -> Tensor:
    """Arithmetic mean of the token ratios of a unit (one of two interpretations of turn-level PPO).

    Args:
        log_ratio_M: Log-ratio of each token.
        unit_M: int; unit that each token belongs to. Any numbers.

    Returns:
        [M]; the gradient with respect to a token's log-prob is that token's own ratio.
    """
    ratio_M = log_ratio_M.exp()
    return unit_mean(ratio_M.detach(), unit_M) + (ratio_M - ratio_M.detach())


def unit_mean(values_M: Tensor, unit_M: Tensor) -> Tensor:
    """Mean over the unit of each token, [M]."""
    _, index_M, count_U = torch.unique(unit_M, return_inverse=True, return_counts=True)
    sum_U = values_M.new_zeros(len(count_U)).index_add_(0, index_M, values_M)
    return (sum_U / count_U)[index_M]


RATIOS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "token": token_ratio,
    "turn_geometric": geometric_ratio,
    "turn_arithmetic": arithmetic_ratio,
    "sequence": geometric_ratio,
}
"""Name used in settings, which also determines the unit -> ratio."""
