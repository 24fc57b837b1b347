"""The critic: the policy's architecture with a scalar head, which values the state before every response token.

Legend: M response tokens of a micro-batch, N response tokens of the update.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from starpo.ragen.learning.learners.adapters import frozen_parameters
from starpo.ragen.learning.learners.batches import MicroBatch
from starpo.ragen.learning.learners.credit import Credit
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup, SingleProcess
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.scoring import hidden_states, of_tokens
from starpo.ragen.learning.learners.update_inputs import UpdateInputs
from starpo.ragen.learning.objectives.losses import value_loss


class Critic(nn.Module):
    """Transformer without its output layer, and a linear map to one number."""

    def __init__(self, backbone: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.head.weight)  # an untrained critic predicts 0
        nn.init.zeros_(self.head.bias)

    @classmethod
    def from_policy(cls, policy: PreTrainedModel, *, is_base_shared: bool = True) -> "Critic":
        """Create a critic from a copy of the policy's weights, and a zero head.

        Args:
            policy: The policy; its adapters, if any, are copied too.
            is_base_shared: Share the weights frozen by adapters with the policy instead of copying them.
        """
        frozen = frozen_parameters(policy) if is_base_shared else {}
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws random weights before they are set to zero
            critic = cls(copy.deepcopy(policy.base_model, frozen), policy.config.get_text_config().hidden_size)
        return critic.to(policy.device).eval()

    def forward(self, batch: MicroBatch) -> Tensor:
        """Return the value of the state before each response token, float32 [M]."""
        return of_tokens(self.head(hidden_states(self.backbone, batch))[:, 0].float(), batch)


def evaluate(
    values: Callable[[MicroBatch], Tensor],
    batches: Sequence[MicroBatch],
    num_tokens: int,
    runner: MicroBatchRunner,
    dp_group: DataParallelGroup | None = None,
) -> Tensor:
    """Compute the values of the states before all response tokens of an update.

    Args:
        values: Computes the values of a micro-batch, [M]: a `Critic` or a stand-in.
        batches: This process's micro-batches; those of all ranks together hold every token once.
        num_tokens: N.
        runner: Runs the forward passes.
        dp_group: Data-parallel group that holds the other micro-batches; None if this process has all of them.

    Returns:
        float32 [N] on the CPU.
    """
    values_N = torch.zeros(num_tokens, device=runner.device)
    for batch, values_M in zip(batches, runner.run(torch.no_grad()(values), batches), strict=True):
        values_N[batch.token_M] = values_M.to(values_N.dtype)
    return (dp_group or SingleProcess()).sum(values_N.cpu())


@dataclass(frozen=True)
class ValueLoss:
    """The critic's loss over the tokens of a mini-batch at which it is fitted, a micro-batch at a time.

    Attributes:
        inputs: The update.
        weights_N: Weight of each token in the loss, on the learner's device; 0 where the critic is not fitted.
        old_N: The critic's values before the first step, on the learner's device.
        targets_N: Targets that it is fitted to, on the learner's device.
        terms_N: Filled in by the micro-batches: weighted loss of each token.
    """

    inputs: UpdateInputs
    weights_N: Tensor
    old_N: Tensor
    targets_N: Tensor
    terms_N: Tensor

    @classmethod
    def over(cls, inputs: UpdateInputs, credit: Credit, old_N: Tensor | None, is_in_N: Tensor) -> "ValueLoss":
        """Create the loss over the given tokens, bool [N]; all arguments on the CPU."""
        assert old_N is not None
        assert credit.value_targets_N is not None
        assert credit.value_mask_N is not None
        is_fitted_N = credit.value_mask_N & is_in_N
        device = inputs.runner.device
        weights_N = (is_fitted_N / is_fitted_N.sum().clamp(min=1)).to(device)
        targets_N = credit.value_targets_N.to(device)
        return cls(inputs, weights_N, old_N.to(device), targets_N, torch.zeros_like(weights_N))

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
        values_M = self.inputs.models["critic"](batch)
        terms_M = self.weights_N[batch.token_M] * value_loss(values_M, old_M, targets_M, clip_value)
        self.terms_N[batch.token_M] = terms_M.detach().to(self.terms_N.dtype)
        loss = terms_M.sum()
        return loss, loss.detach()
