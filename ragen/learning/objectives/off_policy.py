"""Terms of a loss on tokens that another policy than the one in training has sampled (DeepSeek-V3.2, 2512.02556).

Legend: M tokens of a micro-batch. Functions without suffixes take any shape, the same for all arguments.
"""

from torch import Tensor

from starpo.ragen.learning.objectives.kl import k3
from starpo.ragen.learning.objectives.ratios import unit_mean


def is_left_behind(
    logprobs_M: Tensor, behaviour_logprobs_M: Tensor, advantages_M: Tensor, sequence_M: Tensor, max_kl: float
) -> Tensor:
    """Mark tokens with a negative advantage in sequences that the policy has left: they say what it no longer does.

        A < 0   and   mean over the sequence of log(mu / pi) > max_kl          mu: the policy that sampled

    Args:
        logprobs_M: Log-probs under the policy, nats.
        behaviour_logprobs_M: Log-probs under the policy that sampled, nats.
        advantages_M: Advantages.
        sequence_M: int; sequence of each token.
        max_kl: Largest mean, nats per token.

    Returns:
        bool [M]
    """
    return (advantages_M < 0) & (unit_mean(behaviour_logprobs_M - logprobs_M.detach(), sequence_M) > max_kl)


def reverse_kl(policy_logprobs: Tensor, ref_logprobs: Tensor, log_ratio: Tensor) -> Tensor:
    """`rho * k3`, nats: KL(policy || reference) of each token, unbiased in value and gradient.

    k3 alone has the gradient of KL(reference || policy), and takes tokens for samples of the policy. The ratio corrects
    both: the gradient of a token is rho * log(policy / reference), which is bounded where the reference is unlikely.

    Args:
        policy_logprobs: Log-probs under the policy.
        ref_logprobs: Log-probs under the reference policy.
        log_ratio: Log-ratio of the policy to the one that the tokens count as samples of; with its gradient.
    """
    return log_ratio.exp() * k3(policy_logprobs, ref_logprobs)
