"""Surrogates that leave out tokens whose probability has left a trust region in the direction of their advantage.

    probabilities of a token under two policies -> divergence of "this token or any other" -> tokens left out

A ratio says little about how far a distribution has moved: a token of probability 1e-4 that doubles has the ratio 2 and
moves 1e-4 of probability, one of 0.5 with the ratio 1.5 moves a quarter.

Legend: M tokens of a micro-batch.
"""

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.surrogates import SurrogateInputs, SurrogateTerms

_SMALLEST = 1e-6
"""Probabilities are kept this far from 0 and 1, where the logarithms of a divergence have no value."""


def dppo_tv(inputs: SurrogateInputs) -> SurrogateTerms:
    """`-rho * A` without the tokens whose binary total variation is beyond its bound (DPPO, 2602.04879).

        -rho * A * M,   M = 0 where A > 0 and p - q > clip_high, or A < 0 and q - p > clip_low, else 1

    p is the token's probability under the policy and q = p / rho that under the policy of `ratio_to`, in the paper the
    one that sampled. The public code (verl, `dppo_tv`) also truncates rho.
    """
    policy_M, other_M = _probabilities(inputs)
    return _within(inputs, (policy_M - other_M).abs(), policy_M > other_M)


def dppo_kl(inputs: SurrogateInputs) -> SurrogateTerms:
    """As `dppo_tv`, by the binary KL divergence, nats (DPPO, 2602.04879).

    D = q log(q / p) + (1 - q) log((1 - q) / (1 - p)), against clip_high where p > q and against clip_low where p < q
    """
    policy_M, other_M = (p_M.clamp(_SMALLEST, 1 - _SMALLEST) for p_M in _probabilities(inputs))
    divergence_M = other_M * (other_M / policy_M).log() + (1 - other_M) * ((1 - other_M) / (1 - policy_M)).log()
    return _within(inputs, divergence_M, policy_M > other_M)


def _probabilities(inputs: SurrogateInputs) -> tuple[Tensor, Tensor]:
    """Probability of each token under the policy and under that of the ratio, without gradients."""
    logprobs_M = inputs.logprobs_M.detach()
    return logprobs_M.exp(), (logprobs_M - inputs.log_ratio_M.detach()).exp()


def _within(inputs: SurrogateInputs, divergence_M: Tensor, is_likelier_M: Tensor) -> SurrogateTerms:
    advantages_M = inputs.advantages_M.detach()
    is_high_M = (advantages_M > 0) & is_likelier_M & (divergence_M > inputs.clip_high)
    is_low_M = (advantages_M < 0) & ~is_likelier_M & (divergence_M > inputs.clip_low)
    return SurrogateTerms(torch.where(is_high_M | is_low_M, 0.0, -inputs.ratio_M * advantages_M), is_low_M, is_high_M)
