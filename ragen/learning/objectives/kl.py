"""Per-token estimators of KL(policy || reference) from sampled tokens.

Source: J. Schulman, "Approximating KL divergence", 2020.

With tokens drawn from the policy and `d = ref_logprobs - policy_logprobs`:

    k1 = -d                 unbiased, signed; its gradient in a loss has expectation 0, so it belongs in the reward
    k2 = d^2 / 2            biased, never negative; its gradient is the divergence's
    k3 = exp(d) - 1 - d     unbiased, never negative; its gradient is that of KL(reference || policy)
"""

from collections.abc import Callable

from torch import Tensor

LARGEST_LOG_RATIO = 20.0
"""Log-ratios are clamped to +-20 before `exp`: e^20 = 4.9e8 is effectively infinite, and float32 overflows at e^88."""


def k1(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Log-ratio, nats per token. Any shape, the same for both."""
    return policy_logprobs - ref_logprobs


def k2(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Half the squared log-ratio, nats per token. Any shape, the same for both."""
    return (ref_logprobs - policy_logprobs).square() / 2


def k3(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Log-ratio with the control variate `exp(d) - 1`, nats per token (GRPO, 2402.03300, Eq. 4). Any shape."""
    log_ratio = (ref_logprobs - policy_logprobs).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return log_ratio.expm1() - log_ratio


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
"""Name used in settings -> estimator."""
