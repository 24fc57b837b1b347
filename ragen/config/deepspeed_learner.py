"""Settings of learner 'deepspeed'."""

from typing import ClassVar, Literal

from pydantic import Field

from starpo.ragen.config.learner import LearnerConfig, Sharding


class DeepSpeedConfig(LearnerConfig):
    """How learner 'deepspeed' distributes training over ranks: processes with one GPU, or one CPU thread, each."""

    fine_tunes: ClassVar[bool] = True

    num_ranks: int = Field(1, ge=1, le=1024)
    """Number of processes on this machine; with GPUs, at most the number of GPUs. It affects gradient sums only by
    rounding."""
    zero_stage: Literal[1, 2, 3] = 2
    """What is partitioned over ranks: optimiser states (1), gradients as well (2), weights as well (3)."""
    offload_optimizer: bool = False
    """Keep optimiser states and float32 weights in host memory, and take the optimiser step there."""

    @property
    def sharding(self) -> Sharding:
        """How it distributes an update."""
        return Sharding(self.num_ranks, self.zero_stage, self.offload_optimizer)
