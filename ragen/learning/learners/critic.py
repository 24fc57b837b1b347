"""The critic: the policy's architecture with a scalar head, a value for the state before every response token.

Legend: M response tokens of a micro-batch, N response tokens of the update.
"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from starpo.ragen.learning.learners.adapters import frozen_parameters
from starpo.ragen.learning.learners.batches import MicroBatch
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup, SingleProcess
from starpo.ragen.learning.learners.micro_batches import MicroBatchRunner
from starpo.ragen.learning.learners.scoring import hidden_states, of_tokens


class Critic(nn.Module):
    """A transformer without its output layer, and a linear map to one number."""

    def __init__(self, backbone: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.head.weight)  # before it has learnt anything it expects nothing
        nn.init.zeros_(self.head.bias)

    @classmethod
    def from_policy(cls, policy: PreTrainedModel, *, is_base_shared: bool = True) -> "Critic":
        """A new critic: the policy's weights copied, and a head of zeros.

        Args:
            policy: With its adapters, if it has any: they are copied too.
            is_base_shared: Share the weights that adapters freeze with the policy, instead of copying them.
        """
        frozen = frozen_parameters(policy) if is_base_shared else {}
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws weights before they are set to zero
            critic = cls(copy.deepcopy(policy.base_model, frozen), policy.config.get_text_config().hidden_size)
        return critic.to(policy.device).eval()

    def forward(self, batch: MicroBatch) -> Tensor:
        """Value of the state before each response token, float32 [M]."""
        return of_tokens(self.head(hidden_states(self.backbone, batch))[:, 0].float(), batch)


def evaluate(
    values: Callable[[MicroBatch], Tensor],
    batches: Sequence[MicroBatch],
    num_tokens: int,
    runner: MicroBatchRunner,
    dp_group: DataParallelGroup | None = None,
) -> Tensor:
    """Values before all response tokens of an update.

    Args:
        values: Of a micro-batch, [M]; a `Critic`, or what stands for it.
        batches: Those of all ranks of the group hold every token once.
        num_tokens: N.
        runner: How the forward passes are run.
        dp_group: Who has the other micro-batches. None: nobody, all are here.

    Returns:
        float32 [N] on the CPU.
    """
    values_N = torch.zeros(num_tokens)
    for batch, values_M in zip(batches, runner.run(torch.no_grad()(values), batches), strict=True):
        values_N[batch.token_M.cpu()] = values_M.cpu()
    return (dp_group or SingleProcess()).sum(values_N)
