"""The learner protocol: checkpoint + trajectories -> checkpoint, statistics per trajectory, and metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.trajectories import Trajectory
from starpo.schemas.manifest import FileEntry

if TYPE_CHECKING:
    pass

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
    """

    iteration: int
    num_iterations: int
    seed: int
    temperature: float
    max_response_tokens: int


@dataclass(frozen=True)
class UpdateResult:
    """Result of an update.

    Attributes:
        samples: Dataset `samples`, one row per trajectory, in the order given.
        metrics: Name -> value; names begin with `update/`. A function of the update's inputs, like the samples.
        timings: Name -> seconds, or tokens per second. Not reproducible, so kept separate.
    """

    samples: pa.Table
    metrics: dict[str, float]
    timings: dict[str, float]


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


__all__ = ["Learner", "UpdateConfig", "UpdateContext", "UpdateResult"]
