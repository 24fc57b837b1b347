"""Several objectives on the same trajectories: their gradients before any step, side by side.

trainings, groups -> gradient of every group under every objective -> spreads, inner products
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.gradient_spread import GradientSpread, GradientSums
from starpo.ragen.learning.learners.training import Training


@dataclass(frozen=True)
class MeasuredObjectives:
    """Gradients of J objectives, of the policy's loss over all trajectories as one mini-batch, before any step.

    Attributes:
        groups: Spread of the gradients of single groups, whose mean is the objective's, in the order given. [J]
        gram: Inner products of the objectives' gradients. float64 [J, J]
    """

    groups: list[GradientSpread]
    gram: np.ndarray

    @property
    def cosines(self) -> np.ndarray:
        """Pairwise cosines of the gradients, 1 on the diagonal; NaN where a gradient is 0. float64 [J, J]"""
        norms = np.sqrt(np.diag(self.gram))
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.clip(self.gram / np.outer(norms, norms), -1.0, 1.0)
        np.fill_diagonal(found, np.where(norms > 0, 1.0, np.nan))
        return found


def able_to_measure(configs: Sequence[UpdateConfig]) -> UpdateConfig:
    """Return settings of a learner that has the models that these objectives need: a reference, and a critic or a
    process reward model, of which a checkpoint has at most one."""
    most = next((config for config in configs if config.needs & {"critic", "prm"}), configs[0])
    kl_coefficient = max(config.kl_coefficient for config in configs)
    return most.model_copy(update={"learner": "torch", "kl_coefficient": kl_coefficient})


def measure(trainings: Sequence[Training], groups: Collection[np.ndarray]) -> MeasuredObjectives:
    """Measure the objectives of trainings that differ only in their settings and in what follows from these.

    Args:
        trainings: One for each objective.
        groups: Indices of the trajectories of every group; at least one group.

    Raises:
        LearnerError: If a loss is not finite.
    """
    spreads, means = [], []
    for training in trainings:
        sums = GradientSums()
        for members in groups:
            sums.add(len(groups) * training.gradient(members))
        assert sums.total is not None
        spreads.append(sums.spread())
        means.append(sums.total / sums.num)
    mean = torch.stack(means)
    return MeasuredObjectives(spreads, (mean @ mean.T).numpy())
