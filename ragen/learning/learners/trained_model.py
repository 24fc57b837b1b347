"""`TrainedModel`: a policy or critic together with its optimiser, whatever holds the two.

`TorchModel` keeps both whole in this process; `ragen.learning.learners.deepspeed_model` cuts them up over ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.learning.learners.batches import MicroBatch
from starpo.ragen.learning.learners.micro_batches import MicroBatchRunner
from starpo.ragen.learning.learners.optimisers import ModelOptimiser

LossOf = Callable[[MicroBatch], tuple[Tensor, float]]
"""Of a micro-batch: what to take the gradient of, a scalar, and the number to report."""


class TrainedModel(Protocol):
    """What the steps of an update need of a model."""

    config: OptimiserConfig

    def __call__(self, batch: MicroBatch, *asked: Any) -> Any:
        """What the network makes of a micro-batch: a policy's `ResponseScores`, a critic's values."""

    def accumulate(self, loss: LossOf, batches: Sequence[MicroBatch], runner: MicroBatchRunner) -> float:
        """Add the gradients of the losses of all micro-batches, in their order, to those that the next step takes.

        Returns:
            Sum of the reported numbers of the micro-batches of this process.
        """

    def step(self, factor: float) -> float:
        """Clip the gradient, take one step at `factor` times the peak learning rates, and forget the gradient.

        Returns:
            The gradient's norm before clipping. Where it is not finite nothing is changed.
        """

    def pop_gradient(self) -> Tensor:
        """The gradients added so far, which are then forgotten: trainable parameters end to end, on the CPU. float32"""


class TorchModel:
    """Implements `TrainedModel`: an ordinary module and its optimiser in this process."""

    def __init__(self, network: nn.Module, optimiser: ModelOptimiser) -> None:
        """Put together.

        Args:
            network: Called with micro-batches.
            optimiser: Of the parameters to train.
        """
        self.config = optimiser.config
        self.optimiser = optimiser
        self._network = network

    def __call__(self, batch: MicroBatch, *asked: Any) -> Any:
        """See `TrainedModel`."""
        return self._network(batch, *asked)

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """See `ModelOptimiser.load_state_tensors`."""
        self.optimiser.load_state_tensors(tensors)

    def accumulate(self, loss: LossOf, batches: Sequence[MicroBatch], runner: MicroBatchRunner) -> float:
        """See `TrainedModel.accumulate`."""

        def gradients(batch: MicroBatch) -> tuple[Sequence[Tensor | None], float]:
            of_batch, reported = loss(batch)
            return self.optimiser.gradients(of_batch), reported

        total = 0.0
        try:
            for of_batch, reported in runner.run(gradients, batches):
                self.optimiser.add(of_batch)
                total += reported
        except BaseException:
            self.optimiser.zero_grad()
            raise
        return total

    def flat_gradients(self, losses: Sequence[Tensor]) -> list[Tensor]:
        """See `ModelOptimiser.flat_gradients`."""
        return self.optimiser.flat_gradients(losses)

    def step(self, factor: float) -> float:
        """See `TrainedModel.step`."""
        norm = self.optimiser.step(factor)
        self.optimiser.zero_grad()
        return norm

    def pop_gradient(self) -> Tensor:
        """See `TrainedModel.pop_gradient`."""
        gradient = self.optimiser.flat_gradient()
        self.optimiser.zero_grad()
        return gradient
