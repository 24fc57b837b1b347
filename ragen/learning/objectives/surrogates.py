"""Surrogates: the contribution of a token to the policy's loss, from its ratio and its advantage.

    ratio, advantage, bounds -> surrogate -> loss of each token, and which tokens were clipped

All have one signature, `SurrogateInputs -> SurrogateTerms`. No gradient flows into advantages.

Legend: M tokens of a micro-batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from starpo.ragen.learning.objectives.ratios import unit_mean


@dataclass(frozen=True)
class SurrogateInputs:
    """Per-token inputs of surrogates.

    Attributes:
        logprobs_M: float; log-probs under the policy.
        log_ratio_M: float; log-ratio of the token by itself.
        ratio_M: float; ratio of the unit that `update.ratio` names.
        advantages_M: float; advantages.
        sequence_M: int; sequence that the token belongs to: the tokens with a loss (`update.loss_on`) of a context,
            which is the trajectory or a turn of it (`agent.context`). Those without are a sequence of their own.
        clip_low: The lower bound is 1 - clip_low.
        clip_high: The upper bound is 1 + clip_high.
        covariance_M: float; (old log-prob - mean) * (advantage - mean) over the tokens of the mini-batch. None if the
            surrogate does not need it.
        covariance_rank_M: float; share of these tokens with a larger covariance. None with `covariance_M`.
        options: Settings specific to a surrogate (`update.surrogate_options`), validated by its model.
        rounding: Nats by which two computations of one log-prob may differ; a smaller log-ratio has no certain sign.
    """

    logprobs_M: Tensor
    log_ratio_M: Tensor
    ratio_M: Tensor
    advantages_M: Tensor
    sequence_M: Tensor
    clip_low: float
    clip_high: float
    covariance_M: Tensor | None = None
    covariance_rank_M: Tensor | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    rounding: float = 0.0

    def __post_init__(self) -> None:
        shapes = {tensor.shape for tensor in (self.logprobs_M, self.log_ratio_M, self.ratio_M, self.advantages_M)}
        assert len(shapes) == 1, f"shapes differ: {shapes}"


@dataclass(frozen=True)
class SurrogateTerms:
    """Output of a surrogate.

    Attributes:
        loss_M: float; unweighted loss of each token.
        is_low_M: bool; whether the lower bound took effect.
        is_high_M: bool; whether the upper bound took effect. Never both.
    """

    loss_M: Tensor
    is_low_M: Tensor
    is_high_M: Tensor


def ppo(inputs: SurrogateInputs) -> SurrogateTerms:
    """PPO's clipped objective, negated (1707.06347, Eq. 7; two bounds as in DAPO, 2503.14476, Eq. 10).

        -min(rho * A, clip(rho, 1 - clip_low, 1 + clip_high) * A)

    A token is clipped where the second term is the smaller one, so that it has no gradient. With ratios of a sequence
    this is GSPO.
    """
    return _clipped(inputs, 1 - inputs.clip_low, 1 + inputs.clip_high)


def loop(inputs: SurrogateInputs) -> SurrogateTerms:
    """PPO with bounds symmetric in the log-ratio: [1 / (1 + clip_high), 1 + clip_high] (LOOP, 2502.01600)."""
    return _clipped(inputs, 1 / (1 + inputs.clip_high), 1 + inputs.clip_high)


def dual_clip(inputs: SurrogateInputs) -> SurrogateTerms:
    """PPO whose objective is bounded below by `bound * A` for negative advantages (dual-clip PPO, 1912.09729, Eq. 5).

    A < 0: -max(min(rho * A, clip(rho) * A), bound * A)          options["bound"] = 3
    """
    plain = ppo(inputs)
    advantages_M, bound = inputs.advantages_M.detach(), inputs.options.get("bound", 3.0)
    is_far_M = (advantages_M < 0) & (inputs.ratio_M > bound)
    loss_M = torch.where(is_far_M, -bound * advantages_M, plain.loss_M)
    return SurrogateTerms(loss_M, plain.is_low_M, plain.is_high_M | is_far_M)


def unclipped(inputs: SurrogateInputs) -> SurrogateTerms:
    """`-rho * A`: the importance-weighted policy gradient without any bound."""
    nowhere_M = torch.zeros_like(inputs.advantages_M, dtype=torch.bool)
    return SurrogateTerms(-inputs.ratio_M * inputs.advantages_M.detach(), nowhere_M, nowhere_M)


def cispo(inputs: SurrogateInputs) -> SurrogateTerms:
    """Clip the weight, keep every token's gradient (CISPO, MiniMax-M1, 2506.13585, Eq. 4-5).

    -sg(clip(rho, 1 - clip_low, 1 + clip_high)) * A * log pi
    """
    low, high = 1 - inputs.clip_low, 1 + inputs.clip_high
    ratio_M = inputs.ratio_M.detach()
    loss_M = -ratio_M.clamp(low, high) * inputs.advantages_M.detach() * inputs.logprobs_M
    return SurrogateTerms(loss_M, ratio_M < low, ratio_M > high)


def sapo(inputs: SurrogateInputs) -> SurrogateTerms:
    """A soft gate instead of a clip (SAPO, 2511.20347).

        -f * A,   f = 4 / tau * sigmoid(tau * (rho - 1))

    tau is `options["tau_positive"]` where A > 0 and `options["tau_negative"]` elsewhere. At rho = 1 the gradient is
    that of `-rho * A`, and it decays on both sides; no token is ever clipped.
    """
    advantages_M = inputs.advantages_M.detach()
    positive, negative = inputs.options.get("tau_positive", 1.0), inputs.options.get("tau_negative", 1.05)
    tau_M = torch.where(advantages_M > 0, positive, negative).to(inputs.ratio_M)
    nowhere_M = torch.zeros_like(advantages_M, dtype=torch.bool)
    gate_M = 4 / tau_M * torch.sigmoid(tau_M * (inputs.ratio_M - 1))
    return SurrogateTerms(-gate_M * advantages_M, nowhere_M, nowhere_M)


def gmpo(inputs: SurrogateInputs) -> SurrogateTerms:
    """Geometric mean of clipped token ratios as the ratio of a sequence (GMPO, 2507.20673, Eq. 4).

        -exp(mean over the sequence of l) * A,   l = min(log rho, c) where A > 0, max(log rho, -c) elsewhere

    c is `options["log_clip"]` = 0.4. It reads token ratios, and ignores `clip_low` and `clip_high`.
    """
    advantages_M, clip = inputs.advantages_M.detach(), inputs.options.get("log_clip", 0.4)
    is_high_M = (advantages_M > 0) & (inputs.log_ratio_M > clip)
    is_low_M = (advantages_M <= 0) & (inputs.log_ratio_M < -clip)
    clipped_M = torch.where(is_high_M | is_low_M, inputs.log_ratio_M.detach().clamp(-clip, clip), inputs.log_ratio_M)
    mean_M = unit_mean(clipped_M.detach(), inputs.sequence_M)
    return SurrogateTerms(-mean_M.exp() * (clipped_M - clipped_M.detach()).exp() * advantages_M, is_low_M, is_high_M)


def clip_cov(inputs: SurrogateInputs) -> SurrogateTerms:
    """PPO without gradients of the tokens that reduce entropy most (Clip-Cov, 2505.22617, Eq. 9-10).

    These are, among the share `options["share"]` of the mini-batch's tokens with the largest covariance, those whose
    covariance is between `options["low"]` and `options["high"]`. The public code instead draws as many tokens at random
    from all in that range, which it computes in every step from the current log-probs of the tokens that PPO does not
    clip; here covariances are of the log-probs before the update and over all tokens (`covariances`).
    """
    covariance_M, rank_M = _covariances(inputs)
    plain = ppo(inputs)
    share, low, high = (inputs.options[name] for name in ("share", "low", "high"))
    is_chosen_M = (rank_M < share) & (covariance_M > low) & (covariance_M < high)
    loss_M = torch.where(is_chosen_M, plain.loss_M.detach(), plain.loss_M)
    return SurrogateTerms(loss_M, plain.is_low_M & ~is_chosen_M, plain.is_high_M | is_chosen_M)


def kl_cov(inputs: SurrogateInputs) -> SurrogateTerms:
    """`-rho * A` with a KL penalty on the tokens that reduce entropy most (KL-Cov, 2505.22617, Eq. 11-12).

    -rho * A + coefficient * |log rho|      for the share `options["share"]` with the largest covariance

    The public code takes the current log-probs for these; here they are those before the update (`covariances`). It
    also penalises every log-ratio; here there is no penalty up to `inputs.rounding`, where its gradient would be the
    sign of a rounding error.
    """
    _, rank_M = _covariances(inputs)
    plain = unclipped(inputs)
    distance_M = inputs.log_ratio_M.abs()
    penalty_M = inputs.options["coefficient"] * torch.where(distance_M > inputs.rounding, distance_M, 0.0)
    return SurrogateTerms(
        torch.where(rank_M < inputs.options["share"], plain.loss_M + penalty_M, plain.loss_M),
        plain.is_low_M,
        plain.is_high_M,
    )


def covariances(old_logprobs: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance by which Clip-Cov and KL-Cov choose tokens (2505.22617, Eq. 8).

    It is large for tokens whose probability and advantage are both above (or both below) average. The tokens chosen are
    thus the same in every epoch.

    Args:
        old_logprobs: Log-probs of the tokens of a mini-batch before the update. [n]
        advantages: Their advantages. [n]

    Returns:
        (old log-prob - mean) * (advantage - mean), [n]; and the share of tokens with a larger one, ties in order. [n]
    """
    covariance = (old_logprobs - old_logprobs.mean()) * (advantages - advantages.mean())
    rank = torch.empty_like(covariance)
    order = torch.argsort(covariance, descending=True, stable=True)
    rank[order] = torch.arange(len(order), device=rank.device).to(rank) / max(len(order), 1)
    return covariance, rank


def _covariances(inputs: SurrogateInputs) -> tuple[Tensor, Tensor]:
    assert inputs.covariance_M is not None, "this surrogate needs covariances"
    assert inputs.covariance_rank_M is not None, "this surrogate needs covariances"
    return inputs.covariance_M, inputs.covariance_rank_M


def _clipped(inputs: SurrogateInputs, low: float, high: float) -> SurrogateTerms:
    ratio_M, advantages_M = inputs.ratio_M, inputs.advantages_M.detach()
    loss_M = -torch.minimum(ratio_M * advantages_M, ratio_M.clamp(low, high) * advantages_M)
    return SurrogateTerms(loss_M, (ratio_M < low) & (advantages_M < 0), (ratio_M > high) & (advantages_M > 0))
