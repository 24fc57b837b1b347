"""`UpdateInputs`: what one update works on and with, the same in every learner.

Legend: N response tokens of the update, M those of a micro-batch.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.companion import Companion
from starpo.ragen.learning.learners.data.batches import Contexts, MicroBatch, micro_batches
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.scoring import Scorer, Scores, score
from starpo.ragen.learning.learners.models.trained_model import TrainedModel

if TYPE_CHECKING:
    from starpo.ragen.learning.learners.data.observed import ObservedTokens


@dataclass(frozen=True)
class LoadedCompanion:
    """A companion and its model in an update.

    Attributes:
        companion: What it is.
        open: Opens a context that yields its model: a trained one, or a scorer, which may be the policy itself with its
            adapters disabled.
        trained: The model, which updates change in place; None if it is frozen.
    """

    companion: Companion
    open: Callable[[], AbstractContextManager[Any]]
    trained: TrainedModel | None = None

    @classmethod
    def of_trained(cls, companion: Companion, model: TrainedModel) -> "LoadedCompanion":
        """Return a companion that is trained."""
        return cls(companion, lambda: nullcontext(model), model)


@dataclass(frozen=True)
class UpdateInputs:
    """Models, trajectories and ranks of one update.

    Attributes:
        config: Settings of the update.
        context: Position of the update in the run.
        policy: The policy; updates change it in place.
        companions: Name -> the models beside the policy that the objective needs.
        trajectories: Trajectories to train on.
        tokens: Their response tokens; at least one.
        row_tokens: Maximum tokens of a row in which segments share a prefix (see `batches.micro_batches`).
        runner: Runs the micro-batches.
        dp_group: Data-parallel group that computes the update.
        entropy_level: Level of an entropy bonus that aims at a target, as the checkpoint holds it; None without.
        num_restarted: Number of optimisers that were re-initialised when the models were loaded.
    """

    config: UpdateConfig
    context: UpdateContext
    policy: TrainedModel
    companions: Mapping[str, LoadedCompanion]
    trajectories: Sequence[Trajectory]
    tokens: ResponseTokens
    row_tokens: int
    runner: MicroBatchRunner
    dp_group: DataParallelGroup
    num_restarted: int = 0
    entropy_level: float | None = None

    @cached_property
    def observed(self) -> "ObservedTokens | None":
        """Contexts with the observations to predict (`update.observation_coefficient`); None if there are none."""
        if self.config.observation_coefficient == 0:
            return None
        from starpo.ragen.learning.learners.data.observed import ObservedTokens

        return ObservedTokens(self.tokens)

    def loss_batches(self, trajectories: np.ndarray | None = None) -> list[MicroBatch]:
        """Pack some trajectories as `micro_batches` does, for the policy's loss: with observations if it has them."""
        return self.micro_batches(trajectories, self.observed)

    def micro_batches(
        self, trajectories: np.ndarray | None = None, contexts: Contexts | None = None
    ) -> list[MicroBatch]:
        """Pack this process's share of some trajectories, given by index, into micro-batches on its device.

        Args:
            trajectories: Indices of trajectories; None for all.
            contexts: Their contexts; None for the response tokens.
        """
        owner = self.tokens.segment_trajectory
        segments = np.arange(len(owner)) if trajectories is None else np.flatnonzero(np.isin(owner, trajectories))
        batches = micro_batches(
            contexts or self.tokens,
            segments,
            self.config.micro_batch_tokens,
            row_tokens=self.row_tokens,
            rank=self.dp_group.rank,
            num_ranks=self.dp_group.size,
        )
        return [batch.to(self.runner.device) for batch in batches]

    def is_of(self, trajectories: np.ndarray) -> Tensor:
        """Return whether each response token belongs to one of these trajectories. bool [N]"""
        return torch.from_numpy(np.isin(self.tokens.trajectory_N.numpy(), trajectories))

    def score(self, scorer: Scorer, batches: Sequence[MicroBatch], *, with_collision: bool = False) -> Scores:
        """Score the tokens of micro-batches, without gradients (`scoring.score`).

        Raises:
            LearnerError: If a log-probability is not finite; the message names the trajectory.
        """
        scores = score(
            scorer, batches, len(self.tokens), self.context.temperature, self.runner, self.dp_group,
            with_collision=with_collision,
        )  # fmt: skip
        is_bad_N = ~torch.isfinite(scores.logprobs_N)
        if is_bad_N.any():
            culprit = self.trajectories[int(self.tokens.trajectory_N[is_bad_N][0])]
            raise LearnerError(
                f"a token of trajectory '{culprit.trajectory_id}' has a log-probability that is not finite: the "
                "weights of the policy or of the reference are damaged, or overflow in this dtype. Before a run's "
                "first step no learning rate is at fault: compare with update.dtype = 'float32'. Later, go back to an "
                "earlier checkpoint, and lower the learning rates of update.optimiser"
            )
        return scores

    def sum_over_ranks(self, value: float) -> float:
        """Sum a number over the data-parallel group; all ranks must call it."""
        return float(self.dp_group.sum(torch.tensor(value, dtype=torch.float64)))

    def check_finite(self, terms_N: Tensor, model: str) -> None:
        """Check that the terms of a model's loss are finite; on a GPU this waits for them.

        Raises:
            LearnerError: If one is not; the message names the trajectory.
        """
        is_bad_N = ~torch.isfinite(terms_N.cpu())
        if is_bad_N.any():
            trajectory_id = self.trajectories[int(self.tokens.trajectory_N[is_bad_N][0])].trajectory_id
            raise LearnerError(
                f"the {model}'s loss on a token of trajectory '{trajectory_id}' is {terms_N.cpu()[is_bad_N][0]}, "
                "not a finite number. The stored checkpoint is untouched. Before a run's first step no learning rate "
                "is at fault: compare with update.dtype = 'float32'. Later, lower it or max_gradient_norm, and update "
                "again"
            )
