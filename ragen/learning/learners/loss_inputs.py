"""`LossInputs`: what the policy's loss knows of every token before the first step.

    log-probs before the update, advantages, importance weights -> per-token inputs of the losses of all mini-batches

Legend: N response tokens of the update.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.objectives.losses import truncated_importance
from starpo.ragen.learning.objectives.masks import masked_mean


@dataclass(frozen=True)
class LossInputs:
    """Per-token inputs of the policy's loss, on the learner's device. [N] each

    Attributes:
        behaviour_logprobs_N: Log-probs under the behaviour policy. float32
        old_logprobs_N: Log-probs under the policy before the first step. float32
        ref_logprobs_N: Log-probs under the reference policy. float32; None without a reference.
        advantages_N: Advantages as they enter the loss. float32
        sequence_N: Index of each token's sequence: its context. Tokens without a loss (`loss_on`) are a sequence of
            their own: means over a sequence are over tokens with one. int64
        unit_N: Index of the unit that shares a ratio (`update.ratio`): the token's sequence or its turn. int64
        entropy_N: Entropy of the policy before the first step. float32; None if the objective does not read it.
        importance_N: Importance weights (`update.importance_cap`). float32; None without.
        top_tokens: The teacher's most probable tokens, int64, and their log-probs, float32, [N, K] each; None if the
            loss does not compare with them.
        entropy_coefficient: Weight of the entropy bonus in this update.
        importance_metrics: Of weights of units, over the tokens with a loss.
    """

    behaviour_logprobs_N: Tensor
    old_logprobs_N: Tensor
    ref_logprobs_N: Tensor | None
    advantages_N: Tensor
    sequence_N: Tensor
    unit_N: Tensor
    entropy_N: Tensor | None = None
    importance_N: Tensor | None = None
    top_tokens: tuple[Tensor, Tensor] | None = None
    entropy_coefficient: float = 0.0
    importance_metrics: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        tokens: ResponseTokens,
        config: UpdateConfig,
        old_logprobs_N: Tensor,
        ref_logprobs_N: Tensor | None,
        advantages_N: Tensor,
        device: torch.device,
        entropy_N: Tensor | None = None,
    ) -> "LossInputs":
        """Collect the inputs; arguments as the attributes, on the CPU."""
        sequence_N = 2 * tokens.segment_N + tokens.mask(config.loss_on)
        unit_N = sequence_N
        if config.ratio not in ("token", "sequence"):
            unit_N = sequence_N * (int(tokens.turn_N.max()) + 1) + tokens.turn_N
        old_logprobs_N, behaviour_N = old_logprobs_N.to(device), tokens.behaviour_logprobs_N.to(device)
        return cls(
            behaviour_logprobs_N=behaviour_N,
            old_logprobs_N=old_logprobs_N,
            ref_logprobs_N=None if ref_logprobs_N is None else ref_logprobs_N.to(device),
            advantages_N=advantages_N.to(device),
            sequence_N=sequence_N.to(device),
            unit_N=unit_N.to(device),
            entropy_N=None if entropy_N is None or config.uncertain_share == 1 else entropy_N.to(device),
            entropy_coefficient=config.entropy_coefficient,
        ).weighted(tokens.mask(config.loss_on).to(device), config)

    def weighted(self, has_loss_N: Tensor, config: UpdateConfig) -> "LossInputs":
        """Return a copy with importance weights, if the objective has any."""
        if config.importance_cap is None:
            return self
        given = self.old_logprobs_N, self.behaviour_logprobs_N
        if not config.has_unit_importance:
            return replace(self, importance_N=truncated_importance(*given, config.importance_cap))
        from starpo.ragen.learning.objectives.importance import importance_weights

        weight_N, is_outside_N = importance_weights(
            *given,
            self.sequence_N,
            config.importance_unit,
            config.importance_cap,
            config.importance_floor,
            config.importance_outside,
        )
        metrics = {
            "update/importance_mean": float(masked_mean(weight_N.double(), has_loss_N)),
            "update/importance_outside_share": float(masked_mean(is_outside_N.double(), has_loss_N)),
        }
        return replace(self, importance_N=weight_N, importance_metrics=metrics)
