"""The learner protocol: checkpoint + trajectories -> checkpoint, statistics per trajectory, and metrics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.examples import Example
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.schemas.manifest import FileEntry

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from starpo.ragen.agents.vision.image_table import ImageTable

OnProgress = Callable[[int, int], None]
"""Called with the amount of work done and its total."""

NOTHING_LOADED = "the learner holds no policy yet; call load() with a checkpoint's folder first"
"""Message of the `LearnerError` that learners raise when they are used before `load`."""


@dataclass(frozen=True)
class UpdateContext:
    """Position of an update in the run; everything here is part of its stage key.

    Attributes:
        iteration: Number of updates before this one.
        num_iterations: Number of updates in the whole run; used by schedules.
        seed: Seed of the shuffling.
        temperature: Temperature of the rollout; log-probs are those of the distribution that was sampled from.
        max_response_tokens: Maximum response length of the rollout, for Dr. GRPO's denominator.
        kept_share: Share of the played groups that are trained on.
    """

    iteration: int
    num_iterations: int
    seed: int
    temperature: float
    max_response_tokens: int
    kept_share: float = 1.0


@dataclass(frozen=True)
class UpdateResult:
    """Result of an update.

    Attributes:
        samples: Dataset `samples`, one row per trajectory, in the order given.
        metrics: Name -> value; names begin with `update/`. A function of the update's inputs, like the samples.
        timings: Name -> seconds, or tokens per second. Not reproducible, so kept separate.
        trained_tokens: Makes dataset `trained_tokens`; None if the learner keeps no numbers of tokens.
    """

    samples: pa.Table
    metrics: dict[str, float]
    timings: dict[str, float]
    trained_tokens: Callable[[], pa.Table] | None = None


class Learner(Protocol):
    """Policy, critic and optimisers that can be loaded, updated and saved."""

    is_deterministic: bool
    """Whether the same update gives the same bytes on the same machine with the same number of threads."""
    checkpoint_key: str | None
    """Artifact key of the checkpoint that is loaded; None before the first `load`, and from `update` until it is saved.
    Set it to None if the state turns out not to be that checkpoint's."""

    def load(self, folder: str | None, checkpoint_key: str, reference_folder: str | None) -> None:
        """Load a checkpoint; a no-op if it is loaded already.

        Args:
            folder: Local folder of the checkpoint; not needed if it is loaded already.
            checkpoint_key: Its artifact key.
            reference_folder: Local folder of the run's first checkpoint; needed if KL is used.

        Raises:
            PolicyError: If the folder is not a checkpoint.
        """

    def update(
        self, trajectories: list[Trajectory], context: UpdateContext, on_progress: OnProgress | None = None
    ) -> UpdateResult:
        """Train on these trajectories.

        Args:
            trajectories: The trajectories.
            context: Position of the update in the run.
            on_progress: Called with (forward passes done, their total), where the total is known; a backward pass
                counts as two.

        Raises:
            LearnerError: If there is nothing to train on, or a loss is not finite.
        """

    def save(self, folder: str, checkpoint_key: str) -> None:
        """Write the current checkpoint into an empty local folder; it becomes the loaded one, under this key."""

    def save_policy(self, folder: str, checkpoint_key: str) -> list[FileEntry]:
        """Like `save`, but write the policy alone, and only hash what training needs besides.

        Returns:
            The entries of all files that `save` would have written, sorted by name.
        """


class FineTuner(Protocol):
    """Learner that also fine-tunes policies by supervised learning (`LearnerConfig.fine_tunes`)."""

    def fine_tune(
        self,
        policy: PretrainedPolicy,
        model: "PreTrainedModel",
        examples: Sequence[Example],
        folder: str | Path,
        on_progress: OnProgress | None = None,
        images: "ImageTable | None" = None,
    ) -> dict[str, float]:
        """Take the steps of a fine-tuning; the learner then holds no checkpoint.

        Args:
            policy: Where the model is from; its `fine_tuning` must be set.
            model: The policy as loaded, prepared for the steps (`supervised.prepare_policy`), on the CPU; its trained
                weights are changed in place.
            examples: What it imitates.
            folder: Local folder, made if missing, for files as large as the weights; none is left there.
            on_progress: Called with (steps done, total steps).
            images: Images of the examples; None if they are of text alone.

        Returns:
            Loss and accuracy, as in `supervised.learn`.

        Raises:
            LearnerError: If a gradient is not finite.
        """


__all__ = ["FineTuner", "Learner", "UpdateConfig", "UpdateContext", "UpdateResult"]
