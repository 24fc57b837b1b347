"""Distance of a policy from the behaviour policy that sampled the tokens: whether the trajectories are still usable.

The first update on a rollout starts from the policy that played it; each further one (Online-k) starts from a policy
that has moved. The surrogate's gradient approximates that of the policy's own return only while the two policies are
close, so every update reports their distance before its first step and after its last, where the next update on the
same rollout would start.

Legend: N response tokens of the update, B trajectories with a response token.
"""

import math

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.objectives.kl import k3
from starpo.ragen.learning.objectives.masks import masked_mean
from starpo.ragen.learning.objectives.ratios import probability_ratio

QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
"""Reported quantiles of the token ratio."""


def validity(
    tokens: ResponseTokens,
    logprobs_N: Tensor,
    advantages_N: Tensor,
    clip_low: float,
    clip_high: float,
    has_loss_N: Tensor | None = None,
) -> dict[str, float]:
    """Compare a policy with the behaviour policy on the tokens that the latter sampled.

    With the token ratio `r_n = policy probability / behaviour probability` (log-ratios clamped to +-20):

    - `ratio_q01`, `_q05`, `_q50`, `_q95`, `_q99`: quantiles of r_n over all N tokens, interpolated linearly.
    - `effective_sample_size_tokens`: `(sum r_n)^2 / (N * sum r_n^2)`, Kish's effective sample size as a share of N.
    - `effective_sample_size_trajectories`: the same over B, where the weight of a trajectory is the product of the r_n
      of its response tokens, its full importance weight. Trajectories without response tokens are excluded.
    - `clip_share`: share of the tokens with a loss whose gradient PPO's clip would zero if the behaviour policy were
      the old one: `r_n < 1 - clip_low` with a negative advantage, or `r_n > 1 + clip_high` with a positive one. 0 if
      no token has a loss.
    - `kl`: KL(behaviour || policy), nats per token: mean over N of `r_n - 1 - log r_n` (k3, Schulman 2020), which is
      unbiased, because the behaviour policy sampled the tokens, and never negative.

    The behaviour policy itself has ratios and effective sample sizes of 1, and 0 for the others. Effective sample sizes
    are in (0, 1] and invariant to scaling all weights.

    Args:
        tokens: Response tokens, at least one, with `behaviour_logprobs_N`.
        logprobs_N: Log-probs under the policy, nats, on the CPU; NaN for tokens that were not scored, which are left
            out. A trajectory is scored as a whole.
        advantages_N: Advantages as they enter the loss, on the CPU.
        clip_low: The update's lower clip.
        clip_high: The update's upper clip.
        has_loss_N: Tokens that enter the loss, on the CPU. bool; None for all.

    Returns:
        The names above -> values, all finite.
    """
    is_scored_N = ~logprobs_N.isnan()
    drift_N = logprobs_N.double() - tokens.behaviour_logprobs_N.double()
    log_weight_B = tokens.sums(drift_N.nan_to_num(0.0))[tokens.sums(is_scored_N) > 0]
    policy_N, behaviour_N = logprobs_N[is_scored_N].double(), tokens.behaviour_logprobs_N[is_scored_N].double()
    advantages_N, ratio_N = advantages_N[is_scored_N], probability_ratio(policy_N, behaviour_N)
    has_loss_N = is_scored_N[is_scored_N] if has_loss_N is None else has_loss_N[is_scored_N]
    is_low_N, is_high_N = (ratio_N < 1 - clip_low) & (advantages_N < 0), (ratio_N > 1 + clip_high) & (advantages_N > 0)
    return {
        **{f"ratio_q{round(100 * q):02d}": float(np.quantile(ratio_N.numpy(), q)) for q in QUANTILES},
        "effective_sample_size_tokens": effective_sample_size(ratio_N.log()),
        "effective_sample_size_trajectories": effective_sample_size(log_weight_B),
        "clip_share": float(masked_mean((is_low_N | is_high_N).double(), has_loss_N)),
        "kl": float(k3(behaviour_N, policy_N).mean()),
    }


def effective_sample_size(log_weights: Tensor) -> float:
    """Kish's effective sample size as a share of the number of samples: `(sum w)^2 / (n * sum w^2)`.

    1 if all weights are equal, 1/n if one sample holds all the weight.

    Args:
        log_weights: float64 [n], n > 0. Only their differences matter, so no weight overflows.
    """
    total = 2 * torch.logsumexp(log_weights, 0) - torch.logsumexp(2 * log_weights, 0)
    return min(1.0, float((total - math.log(len(log_weights))).exp()))
