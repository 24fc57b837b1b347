"""The critic's loss over a mini-batch, a micro-batch at a time.

Legend: M response tokens of a micro-batch, N response tokens of the update.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from starpo.ragen.learning.learners.credit import Credit
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.models.trained_model import TrainedModel
from starpo.ragen.learning.learners.update_inputs import UpdateInputs
from starpo.ragen.learning.objectives.losses import value_loss


@dataclass(frozen=True)
class ValueLoss:
    """The critic's loss over the tokens of a mini-batch at which it is fitted, a micro-batch at a time.

    Attributes:
        inputs: The update.
        critic: The critic.
        weights_N: Weight of each token in the loss, on the learner's device; 0 where the critic is not fitted.
        old_N: The critic's values before the first step, on the learner's device.
        targets_N: Targets that it is fitted to, on the learner's device.
        terms_N: Filled in by the micro-batches: weighted loss of each token.
    """

    inputs: UpdateInputs
    critic: TrainedModel
    weights_N: Tensor
    old_N: Tensor
    targets_N: Tensor
    terms_N: Tensor

    @classmethod
    def over(
        cls, inputs: UpdateInputs, critic: TrainedModel, credit: Credit, old_N: Tensor, is_in_N: Tensor
    ) -> "ValueLoss":
        """Create the loss over the given tokens, bool [N]; tensors on the CPU."""
        assert credit.value_targets_N is not None
        assert credit.value_mask_N is not None
        is_fitted_N = credit.value_mask_N & is_in_N
        device = inputs.runner.device
        weights_N = (is_fitted_N / is_fitted_N.sum().clamp(min=1)).to(device)
        targets_N = credit.value_targets_N.to(device)
        return cls(inputs, critic, weights_N, old_N.to(device), targets_N, torch.zeros_like(weights_N))

    def check(self) -> None:
        """Check the micro-batches computed so far.

        Raises:
            LearnerError: If the loss of a token is not finite.
        """
        self.inputs.check_finite(self.terms_N, "critic")

    def __call__(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Compute the loss of a micro-batch, to differentiate and to report."""
        old_M, targets_M = self.old_N[batch.token_M], self.targets_N[batch.token_M]
        clip_value = self.inputs.config.critic.clip_value
        values_M = self.critic(batch)
        terms_M = self.weights_N[batch.token_M] * value_loss(values_M, old_M, targets_M, clip_value)
        self.terms_N[batch.token_M] = terms_M.detach().to(self.terms_N.dtype)
        loss = terms_M.sum()
        return loss, loss.detach()
