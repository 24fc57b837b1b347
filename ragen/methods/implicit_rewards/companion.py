"""The process reward model (PRM) of iStar: a second policy that takes a step before the policy's first (2509.19199).

copy of the policy -> a step on the preferences of this update -> implicit rewards of its tokens
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starpo.ragen.config.companion import Passes
from starpo.ragen.config.update import OptimiserConfig, UpdateConfig
from starpo.ragen.learning.learners.companion import Column, Companion

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from starpo.ragen.learning.learners.data.batches import MicroBatch
    from starpo.ragen.learning.learners.models.scoring import Scores
    from starpo.ragen.learning.learners.models.trained_model import TrainedModel
    from starpo.ragen.learning.learners.update_inputs import UpdateInputs


class ImplicitRewards(Companion):
    """Its column: implicit rewards after its step, beta * (its log-probs - those of the policy)."""

    name = "prm"
    title = "process reward model"
    passes = Passes(scored=2, trained_before=1, are_certain=False)  # without preferences it takes no step

    def optimiser(self, config: UpdateConfig) -> OptimiserConfig:
        """Return the model's optimiser; without one of its own, the policy's."""
        return config.prm.optimiser or config.optimiser

    def begin(self, policy: "PreTrainedModel", *, is_base_shared: bool) -> "nn.Module":
        """Return a copy of the policy."""
        from starpo.ragen.learning.learners.models.adapters import copied

        return copied(policy, is_base_shared=is_base_shared)

    def score(
        self, inputs: "UpdateInputs", model: "TrainedModel", old: "Scores", batches: "Sequence[MicroBatch]"
    ) -> Column:
        """Take the step, and return the rewards after it, float64 [N]."""
        from starpo.ragen.methods.implicit_rewards.preferences import fit

        return fit(inputs, model, old, batches)

    def variant(self, config: UpdateConfig) -> float:
        """Return the scale of the rewards, which decides how far the step goes."""
        return config.prm.beta
