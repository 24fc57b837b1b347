"""The critic: the policy's architecture with a scalar head, which values the state before every response token.

Legend: M response tokens of a micro-batch, N response tokens of the update.
"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup, SingleProcess
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.adapters import frozen_parameters
from starpo.ragen.learning.learners.models.scoring import hidden_states, of_tokens


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
