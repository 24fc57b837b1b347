"""The loss terms other than the surrogate, and the weight of a token in a batch's loss.

A loss is a sum over tokens of `weight * term`. The weights of a mini-batch depend only on the lengths of its
trajectories, so the sums over micro-batches add up to the same loss, however the tokens are split.

Legend: B trajectories, T tokens, V vocabulary. Functions without suffixes take any shape, the same for all arguments.
"""

from typing import Literal

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.ratios import probability_ratio

Aggregation = Literal["token_mean", "sequence_mean", "dr_grpo"]


def truncated_importance(old_logprobs: Tensor, behaviour_logprobs: Tensor, cap: float) -> Tensor:
    """`min(pi_old / pi_behaviour, cap)`: corrects for a sampler whose probabilities differ from the learner's."""
    return probability_ratio(old_logprobs, behaviour_logprobs).clamp(max=cap).detach()


def value_loss(values: Tensor, old_values: Tensor, targets: Tensor, clip_value: float | None) -> Tensor:
    """Half the squared error of the value function at each token.

        max((V - target)^2, (clip(V, V_old - c, V_old + c) - target)^2) / 2

    Args:
        values: The critic's current values.
        old_values: Its values before the update.
        targets: Returns to fit; no gradient flows into them.
        clip_value: c, how far a value can move from its old one and still reduce the loss. None for no clipping.
    """
    assert values.shape == old_values.shape == targets.shape
    targets, old_values = targets.detach(), old_values.detach()
    squared = (values - targets).square()
    if clip_value is not None:
        clipped = old_values + (values - old_values).clamp(-clip_value, clip_value)
        squared = torch.maximum(squared, (clipped - targets).square())
    return squared / 2


def entropy(logprobs_TV: Tensor) -> Tensor:
    """Entropy of each token's distribution, nats.

    Args:
        logprobs_TV: Normalised log-probabilities [..., V]; a token with -inf contributes 0.

    Returns:
        [...], between 0 and log V.
    """
    finite_TV = logprobs_TV.clamp(min=torch.finfo(logprobs_TV.dtype).min)
    return -(finite_TV.exp() * finite_TV).sum(-1)


def token_weights(lengths_B: Tensor, aggregation: Aggregation, max_response_tokens: int) -> Tensor:
    """Weight in the loss of each token of a trajectory; `sum(weight * term)` over a mini-batch is its loss.

        token_mean      1 / (tokens of the mini-batch)                    DAPO, 2503.14476, Eq. 8
        sequence_mean   1 / (trajectories * tokens of the trajectory)     StarPO, 2504.20073, Eq. 4
        dr_grpo         1 / (trajectories * max_response_tokens)          Dr. GRPO, 2503.20783

    Args:
        lengths_B: int; number of response tokens of each trajectory of the mini-batch. Trajectories without any do not
            count in `trajectories`: they have no term.
        aggregation: One of the three above.
        max_response_tokens: Maximum tokens of a response; read by 'dr_grpo' only.

    Returns:
        float64 [B]; 0 for trajectories without tokens.
    """
    lengths_B = lengths_B.to(torch.float64)
    has_tokens_B = lengths_B > 0
    num_trajectories = has_tokens_B.sum().clamp(min=1)
    if aggregation == "token_mean":
        denominators_B = lengths_B.sum().expand_as(lengths_B)
    elif aggregation == "sequence_mean":
        denominators_B = num_trajectories * lengths_B
    elif aggregation == "dr_grpo":
        denominators_B = (num_trajectories * max_response_tokens).to(torch.float64).expand_as(lengths_B)
    else:
        raise AssertionError(f"unknown aggregation '{aggregation}'")
    return torch.where(has_tokens_B, 1 / denominators_B.clamp(min=1), 0)
