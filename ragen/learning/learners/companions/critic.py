"""The critic of PPO: the policy's architecture with a scalar head, trained beside the policy.

policy, zero head -> values before the first step -> estimator -> targets -> a step on every mini-batch
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from starpo.ragen.config.companion import Passes, Sizes
from starpo.ragen.config.update import LoraConfig, OptimiserConfig, UpdateConfig
from starpo.ragen.learning.learners.companion import Column, Companion, CompanionLoss

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel

    from starpo.ragen.learning.learners.credit import Credit
    from starpo.ragen.learning.learners.data.batches import MicroBatch
    from starpo.ragen.learning.learners.models.scoring import Scores
    from starpo.ragen.learning.learners.models.trained_model import TrainedModel
    from starpo.ragen.learning.learners.update_inputs import UpdateInputs


class ValueFunction(Companion):
    """Its column: the value of the state before each token."""

    name = "critic"
    passes = Passes(scored=1, trained_beside=1)
    loss_name = "value_loss"

    def optimiser(self, config: UpdateConfig) -> OptimiserConfig:
        """Return the critic's optimiser."""
        return config.critic.optimiser

    def num_trained(self, sizes: Sizes, lora: LoraConfig | None) -> int:
        """Return the parameters of the backbone or its adapters, and of the head."""
        if lora is None:
            return sizes.num_critic_parameters
        return sizes.num_adapter_parameters(lora.rank, lora.targets) + sizes.hidden_size + 1

    def begin(self, policy: "PreTrainedModel", *, is_base_shared: bool) -> "nn.Module":
        """Return a copy of the policy with a zero head."""
        from starpo.ragen.learning.learners.models.critic import Critic

        return Critic.from_policy(policy, is_base_shared=is_base_shared)

    def score(
        self, inputs: "UpdateInputs", model: "TrainedModel", old: "Scores", batches: "Sequence[MicroBatch]"
    ) -> Column:
        """Compute the values, float32 [N]."""
        from starpo.ragen.learning.learners.models.critic import evaluate

        return evaluate(model, batches, len(inputs.tokens), inputs.runner, inputs.dp_group), {}

    def loss(
        self, inputs: "UpdateInputs", model: "TrainedModel", column_N: "Tensor", credit: "Credit", is_in_N: "Tensor"
    ) -> CompanionLoss:
        """Return the squared error to the value targets, clipped."""
        from starpo.ragen.learning.learners.value_loss import ValueLoss

        return ValueLoss.over(inputs, model, credit, column_N, is_in_N)

    def is_alone(self, config: UpdateConfig, iteration: int) -> bool:
        """Whether it warms up, while the policy waits."""
        return iteration < config.critic.warmup_updates

    def review(self, column_N: "Tensor", credit: "Credit") -> Mapping[str, float]:
        """Return the share of the targets' variance that the values explained."""
        return credit.explained_variance(column_N)
