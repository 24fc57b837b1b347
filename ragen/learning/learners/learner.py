"""The learner protocol: checkpoint + trajectories -> checkpoint, what the update did to each, and its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.gradient_spread import GradientSpread
from starpo.ragen.learning.learners.trajectories import Trajectory

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class UpdateContext:
    """Where in the run an update stands; everything here is part of its stage key.

    Attributes:
        iteration: Updates done before this one.
        num_iterations: Updates in the whole run; schedules need it.
        seed: Seed of the shuffling.
        temperature: The rollout's; log-probs are of the distribution that was sampled from.
        max_response_tokens: The rollout's, for Dr. GRPO's denominator.
        kept_share: Of the groups that were played, the share that is trained on.
    """

    iteration: int
    num_iterations: int
    seed: int
    temperature: float
    max_response_tokens: int
    kept_share: float = 1.0


@dataclass(frozen=True)
class UpdateResult:
    """What an update did.

    Attributes:
        samples: Dataset `samples`, a row a trajectory, in the order given.
        metrics: Name -> value; names begin with `update/`. A function of the update's inputs, like the samples.
        timings: Name -> seconds, or tokens a second. Volatile, so kept apart.
    """

    samples: pa.Table
    metrics: dict[str, float]
    timings: dict[str, float]


class Learner(Protocol):
    """A loaded policy, critic and optimiser that can be updated."""

    is_deterministic: bool
    """Does the same update give the same bytes on the same machine and number of threads?"""

    def load(self, folder: str, checkpoint_key: str, reference_folder: str | None) -> None:
        """Be at this checkpoint: a no-op when already there.

        Args:
            folder: Local folder of the checkpoint.
            checkpoint_key: Its artifact key.
            reference_folder: Local folder of the run's first checkpoint; needed where KL is used.

        Raises:
            PolicyError: If the folder is not a checkpoint.
        """

    def update(self, trajectories: list[Trajectory], context: UpdateContext) -> UpdateResult:
        """Train on these trajectories.

        Raises:
            LearnerError: If there is nothing to train on, or a loss is not finite.
        """

    def gradient(self, trajectories: list[Trajectory], context: UpdateContext) -> "Tensor":
        """The gradient that an update would begin with: nothing of the learner changes.

        Returns:
            Of the policy's loss over all trajectories, taken as one mini-batch at the present checkpoint (the ratio to
            the policy at the update's start is 1, so nothing is clipped unless `ratio_to` = 'behaviour'): all trainable
            parameters end to end, on the CPU. float32

        Raises:
            LearnerError: If there is nothing to train on, or a loss is not finite.
        """

    def gradient_spreads(
        self, trajectories: list[Trajectory], context: UpdateContext, buckets: Sequence[Sequence[str]]
    ) -> list[dict[str, GradientSpread]]:
        """How the gradients of single groups spread, term by term of the policy's loss; nothing of the learner changes.

        A group's gradient is what it contributes to `gradient`, times the number of groups: their mean over all groups
        is `gradient`. Advantages are those of an update on all trajectories.

        Args:
            trajectories: Those of the update.
            context: Where in the run it would stand.
            buckets: Ids of groups, to be put together; of a group without response tokens there is no gradient.

        Returns:
            Of every bucket: 'task' and, where the settings have them, 'kl' and 'entropy', weighted as in the loss.

        Raises:
            LearnerError: If there is nothing to train on, or a loss is not finite.
        """

    def logprobs(self, trajectories: list[Trajectory], context: UpdateContext) -> "Tensor":
        """What the policy makes of all response tokens; nothing of the learner changes.

        Returns:
            Log-probabilities at the context's temperature, nats, in the order of `ResponseTokens`, on the CPU. float32

        Raises:
            LearnerError: If there is no response token, or one's log-probability is not finite.
        """

    def save(self, folder: str, checkpoint_key: str) -> None:
        """Write the present checkpoint into an empty local folder, and be at `checkpoint_key` from now on."""


__all__ = ["Learner", "UpdateConfig", "UpdateContext", "UpdateResult"]
