"""`TrainedModel`: a policy or critic together with its optimiser, independent of where the two are held.

`TorchModel` keeps both in this process; `ragen.learning.learners.deepspeed.model` shards them over ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.micro_batch_runner import WITH_BACKWARD, MicroBatchRunner
from starpo.ragen.learning.learners.models.optimisers import ModelOptimiser

LossOf = Callable[[MicroBatch], tuple[Tensor, Tensor]]
"""Micro-batch -> the scalar to differentiate, and the number to report, without a gradient: a GPU need not have
computed either yet."""


def no_check() -> None:
    """Accept every loss; the step still checks the gradient's norm."""


class TrainedModel(Protocol):
    """Interface of a model that the steps of an update use."""

    config: OptimiserConfig

    def __call__(self, batch: MicroBatch, *arguments: Any) -> Any:
        """Run the network on a micro-batch: a policy returns quantities (`ResponseScores`), a critic values."""

    def accumulate(
        self,
        loss: LossOf,
        batches: Sequence[MicroBatch],
        runner: MicroBatchRunner,
        check: Callable[[], None] = no_check,
    ) -> float:
        """Accumulate the gradients of the losses of all micro-batches, in order, for the next step.

        Args:
            loss: Loss of a micro-batch.
            batches: This process's micro-batches.
            runner: Runs them.
            check: Called once after the last one; if it raises, the accumulated gradient is cleared.

        Returns:
            Sum of the reported numbers over the micro-batches of this process.
        """

    def step(self, factor: float) -> float:
        """Clip the gradient, take one step at `factor` times the peak learning rates, and clear the gradient.

        Returns:
            The gradient norm before clipping. If it is not finite, the step is skipped.
        """


def sum_of(reports: Sequence[Tensor]) -> float:
    """Add up the reported numbers of micro-batches in float64, in order, waiting for the device once."""
    total = 0.0
    for value in torch.stack(list(reports)).tolist() if reports else []:
        total += value
    return total


class TorchModel:
    """Implements `TrainedModel` for a module and its optimiser in this process."""

    def __init__(self, network: nn.Module, optimiser: ModelOptimiser) -> None:
        """Combine a network and its optimiser.

        Args:
            network: Called with micro-batches.
            optimiser: Optimiser of the parameters to train.
        """
        self.config = optimiser.config
        self.optimiser = optimiser
        self._network = network

    def __call__(self, batch: MicroBatch, *arguments: Any) -> Any:
        """See `TrainedModel`."""
        return self._network(batch, *arguments)

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """See `ModelOptimiser.load_state_tensors`."""
        self.optimiser.load_state_tensors(tensors)

    def accumulate(
        self,
        loss: LossOf,
        batches: Sequence[MicroBatch],
        runner: MicroBatchRunner,
        check: Callable[[], None] = no_check,
    ) -> float:
        """See `TrainedModel.accumulate`."""

        def gradients(batch: MicroBatch) -> tuple[Sequence[Tensor | None], Tensor]:
            of_batch, reported = loss(batch)
            return self.optimiser.gradients(of_batch), reported

        reports = []
        try:
            for of_batch, reported in runner.run(gradients, batches, WITH_BACKWARD):
                self.optimiser.add(of_batch)
                reports.append(reported)
            check()
        except BaseException:
            self.optimiser.zero_grad()
            raise
        return sum_of(reports)

    def step(self, factor: float) -> float:
        """See `TrainedModel.step`."""
        norm = self.optimiser.step(factor)
        self.optimiser.zero_grad()
        return norm

    def pop_gradient(self) -> Tensor:
        """Return the accumulated gradient, then clear it: trainable parameters concatenated, on the CPU. float32"""
        gradient = self.optimiser.flat_gradient()
        self.optimiser.zero_grad()
        return gradient
