"""Divergences from a teacher over its most probable tokens, as a term of the loss.

All other tokens count as one event, so K tokens have K + 1 events, and merging tokens can only make a divergence
smaller.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_LEAST = 1e-6
"""Least probability of all other tokens together; below it float32 does not tell it from 0."""


def top_k_reverse_kl(logprobs: Tensor, teacher_logprobs: Tensor) -> Tensor:
    """Compute KL(pi || pi_T), the reverse divergence of GKD (2306.13649).

        sum_k pi_k (log pi_k - log pi_T,k) + r (log r - log r_T),   r = 1 - sum_k pi_k

    Its gradient is the expectation of that of `distillation.distilled` over the K tokens, without the noise of the
    sampled one.

    Args:
        logprobs: The policy's log-probs of the teacher's K most probable tokens, nats. [..., K]
        teacher_logprobs: The teacher's. Same shape.

    Returns:
        Nats, at least 0 up to rounding. [...]
    """
    pi, of_teacher = _with_others(logprobs), _with_others(teacher_logprobs)
    return (pi.exp() * (pi - of_teacher)).sum(-1)


def top_k_forward_kl(logprobs: Tensor, teacher_logprobs: Tensor) -> Tensor:
    """Compute KL(pi_T || pi), the forward divergence of GKD (2306.13649).

        sum_k pi_T,k (log pi_T,k - log pi_k) + r_T (log r_T - log r),   r = 1 - sum_k pi_k

    Its gradient by the logits is pi - pi_T, also where the policy hardly ever takes the teacher's token, of which the
    reverse divergence says little. Arguments and result as in `top_k_reverse_kl`.
    """
    pi, of_teacher = _with_others(logprobs), _with_others(teacher_logprobs)
    return (of_teacher.exp() * (of_teacher - pi)).sum(-1)


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "reverse_kl": top_k_reverse_kl,
    "forward_kl": top_k_forward_kl,
}
"""Divergences by the name in `update.distillation`."""


def _with_others(logprobs: Tensor) -> Tensor:
    """Append the log-probability of all other tokens. [..., K + 1]"""
    others = (1.0 - logprobs.exp().sum(-1, keepdim=True)).clamp(min=_LEAST)
    return torch.cat([logprobs, others.log()], dim=-1)
