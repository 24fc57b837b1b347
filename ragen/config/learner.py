"""`LearnerConfig`: what a learner declares of itself, readable without importing it or its packages."""

from dataclasses import dataclass
from typing import ClassVar

from starpo.ragen.core.settings import Settings


@dataclass(frozen=True)
class Sharding:
    """How an update is distributed over ranks: processes with one GPU, or one CPU thread, each.

    Attributes:
        num_ranks: Number of ranks.
        stage: What is partitioned over them, in ZeRO's terms: nothing (0), optimiser states (1), gradients as well (2),
            weights as well (3).
        is_offloaded: Whether optimiser states and float32 weights are kept in host memory.
    """

    num_ranks: int = 1
    stage: int = 0
    is_offloaded: bool = False


class LearnerConfig(Settings):
    """A learner's own settings, the table `update.NAME`, and what follows from them. The defaults are those of
    'torch'."""

    fine_tunes: ClassVar[bool] = False
    """Whether it takes the steps of a pretrained policy's fine-tuning (`learner.FineTuner`); otherwise the process that
    asks for it takes them, on the CPU or one GPU."""

    @property
    def sharding(self) -> Sharding:
        """How it distributes an update."""
        return Sharding()
