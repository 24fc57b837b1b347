"""The reverse KL to a teacher over its most probable tokens, as a term of the loss."""

import torch
from torch import Tensor

_LEAST = 1e-6
"""Least probability of all other tokens together; below it float32 does not tell it from 0."""


def top_k_divergence(logprobs: Tensor, teacher_logprobs: Tensor) -> Tensor:
    """Compute KL(pi || pi_T) of a distribution over K tokens and all others as one event.

        sum_k pi_k (log pi_k - log pi_T,k) + r (log r - log r_T),   r = 1 - sum_k pi_k

    The reverse divergence of GKD (2306.13649), which merging the other tokens can only make smaller. Its gradient is
    the expectation of that of `distillation.distilled` over the K tokens, without the noise of the sampled one.

    Args:
        logprobs: The policy's log-probs of the teacher's K most probable tokens, nats. [..., K]
        teacher_logprobs: The teacher's. Same shape.

    Returns:
        Nats, at least 0 up to rounding. [...]
    """
    pi, of_teacher = _with_others(logprobs), _with_others(teacher_logprobs)
    return (pi.exp() * (pi - of_teacher)).sum(-1)


def _with_others(logprobs: Tensor) -> Tensor:
    """Append the log-probability of all other tokens. [..., K + 1]"""
    others = (1.0 - logprobs.exp().sum(-1, keepdim=True)).clamp(min=_LEAST)
    return torch.cat([logprobs, others.log()], dim=-1)
