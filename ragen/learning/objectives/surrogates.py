"""Surrogates: what a token adds to the policy's loss, from its ratio and its advantage.

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
    """What surrogates may read, of each token.

    Attributes:
        logprobs_M: float; the policy's.
        log_ratio_M: float; of the token by itself.
        ratio_M: float; of the unit that `update.ratio` names.
        advantages_M: float.
        sequence_M: int; which context the token is in: the trajectory, or a turn of it (`agent.context`).
        clip_low: The lower bound is 1 - clip_low.
        clip_high: The upper bound is 1 + clip_high.
        covariance_M: float; (old log-prob - mean) * (advantage - mean) over the tokens of the mini-batch. None: the
            surrogate does not need it.
        covariance_rank_M: float; the share of those tokens whose covariance is larger. None: as `covariance_M`.
        options: Settings of a surrogate's own (`update.surrogate_options`), checked by its model.
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

    def __post_init__(self) -> None:
        shapes = {tensor.shape for tensor in (self.logprobs_M, self.log_ratio_M, self.ratio_M, self.advantages_M)}
        assert len(shapes) == 1, f"shapes differ: {shapes}"


@dataclass(frozen=True)
class SurrogateTerms:
    """What a surrogate gives.

    Attributes:
        loss_M: float; to be weighted and added up.
        is_low_M: bool; the lower bound took effect.
        is_high_M: bool; the upper one did.
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
    """PPO's, with bounds symmetric in the log-ratio: [1 / (1 + clip_high), 1 + clip_high] (LOOP, 2502.01600)."""
    return _clipped(inputs, 1 / (1 + inputs.clip_high), 1 + inputs.clip_high)


def dual_clip(inputs: SurrogateInputs) -> SurrogateTerms:
    """PPO's, and where the advantage is negative never below `bound * A` (dual-clip PPO, 1912.09729, Eq. 5).

    A < 0: -max(min(rho * A, clip(rho) * A), bound * A)          options["bound"] = 3
    """
    plain = ppo(inputs)
    advantages_M, bound = inputs.advantages_M.detach(), inputs.options.get("bound", 3.0)
    is_far_M = (advantages_M < 0) & (inputs.ratio_M > bound)
    loss_M = torch.where(is_far_M, -bound * advantages_M, plain.loss_M)
    return SurrogateTerms(loss_M, plain.is_low_M, plain.is_high_M | is_far_M)


def unclipped(inputs: SurrogateInputs) -> SurrogateTerms:
    """`-rho * A`: the policy gradient with importance weights and nothing to hold it."""
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
    """A soft gate in place of a clip (SAPO, 2511.20347).

        -f * A,   f = 4 / tau * sigmoid(tau * (rho - 1))

    tau is `options["tau_positive"]` where A > 0 and `options["tau_negative"]` elsewhere. At rho = 1 the gradient is
    that of `-rho * A`, and it fades on both sides; nothing is ever clipped.
    """
    advantages_M = inputs.advantages_M.detach()
    positive, negative = inputs.options.get("tau_positive", 1.0), inputs.options.get("tau_negative", 1.05)
    tau_M = torch.where(advantages_M > 0, positive, negative).to(inputs.ratio_M)
    nowhere_M = torch.zeros_like(advantages_M, dtype=torch.bool)
    gate_M = 4 / tau_M * torch.sigmoid(tau_M * (inputs.ratio_M - 1))
    return SurrogateTerms(-gate_M * advantages_M, nowhere_M, nowhere_M)


def gmpo(inputs: SurrogateInputs) -> SurrogateTerms:
    """The geometric mean of clipped token ratios, as the ratio of a sequence (GMPO, 2507.20673, Eq. 4).

        -exp(mean over the sequence of l) * A,   l = min(log rho, c) where A > 0, max(log rho, -c) elsewhere

    c is `options["log_clip"]` = 0.4. It takes ratios of tokens, and bounds of its own.
    """
    advantages_M, clip = inputs.advantages_M.detach(), inputs.options.get("log_clip", 0.4)
    is_high_M = (advantages_M > 0) & (inputs.log_ratio_M > clip)
    is_low_M = (advantages_M <= 0) & (inputs.log_ratio_M < -clip)
    clipped_M = torch.where(is_high_M | is_low_M, inputs.log_ratio_M.detach().clamp(-clip, clip), inputs.log_ratio_M)
    mean_M = unit_mean(clipped_M.detach(), inputs.sequence_M)
    return SurrogateTerms(-mean_M.exp() * (clipped_M - clipped_M.detach()).exp() * advantages_M, is_low_M, is_high_M)


def clip_cov(inputs: SurrogateInputs) -> SurrogateTerms:
    """PPO's, without the tokens that take most of the entropy (Clip-Cov, 2505.22617, Eq. 9-10).

    Of the mini-batch's tokens, those among the share `options["share"]` of largest covariance whose covariance is
    between `options["low"]` and `options["high"]` have no gradient. The public code draws as many at random from all in
    between.
    """
    covariance_M, rank_M = _covariances(inputs)
    plain = ppo(inputs)
    share, low, high = (inputs.options[name] for name in ("share", "low", "high"))
    is_chosen_M = (rank_M < share) & (covariance_M > low) & (covariance_M < high)
    loss_M = torch.where(is_chosen_M, plain.loss_M.detach(), plain.loss_M)
    return SurrogateTerms(loss_M, plain.is_low_M, plain.is_high_M | is_chosen_M)


def kl_cov(inputs: SurrogateInputs) -> SurrogateTerms:
    """`-rho * A`, and for the tokens that take most of the entropy a penalty on moving (KL-Cov, 2505.22617, Eq. 11-12).

    -rho * A + coefficient * |log rho|      for the share `options["share"]` of largest covariance
    """
    _, rank_M = _covariances(inputs)
    plain = unclipped(inputs)
    penalty_M = inputs.options["coefficient"] * inputs.log_ratio_M.abs()
    return SurrogateTerms(
        torch.where(rank_M < inputs.options["share"], plain.loss_M + penalty_M, plain.loss_M),
        plain.is_low_M,
        plain.is_high_M,
    )


def covariances(old_logprobs: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """What Clip-Cov and KL-Cov choose tokens by (2505.22617, Eq. 8): how likely and how good, both above average.

    Args:
        old_logprobs: Of the tokens of a mini-batch, before its update. [n]
        advantages: Theirs. [n]

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
