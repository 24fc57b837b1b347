"""The critic: the policy's architecture with a scalar head, a value for the state before every response token.

Legend: M response tokens of a micro-batch, N response tokens of the update.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ragen.learn.batches import MicroBatch
from ragen.learn.passes import Passes
from ragen.learn.scoring import hidden_states


class Critic(nn.Module):
    """A transformer without its output layer, and a linear map to one number."""

    def __init__(self, backbone: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.head.weight)  # before it has learnt anything it expects nothing
        nn.init.zeros_(self.head.bias)

    @classmethod
    def from_policy(cls, policy: PreTrainedModel) -> "Critic":
        """A new critic: the policy's weights copied, and a head of zeros."""
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws weights before they are set to zero
            critic = cls(copy.deepcopy(policy.base_model), policy.config.get_text_config().hidden_size)
        return critic.to(policy.device).eval()

    def forward(self, batch: MicroBatch) -> Tensor:
        """Value of the state before each response token, float32 [M]."""
        return self.head(hidden_states(self.backbone, batch))[:, 0].float()


def evaluate(critic: Critic, batches: Sequence[MicroBatch], num_tokens: int, passes: Passes) -> Tensor:
    """Values before all response tokens of an update, float32 [N] on the CPU."""
    values_N = torch.zeros(num_tokens)
    for batch, values_M in zip(batches, passes.run(torch.no_grad()(critic), batches), strict=True):
        values_N[batch.token_M.cpu()] = values_M.cpu()
    return values_N
