"""Orders in which the turns of a mini-batch take their optimiser steps (`update.turn_order`).

    mini-batch -> order: the tokens and advantages of one step -> step -> the order goes on -> ...

An order is a generator: it is resumed after each of its steps has been taken, and may then ask for the log-probs of the
policy as it is now.

Legend: N response tokens of the update.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from starpo.ragen.config.objective import ObjectiveConfig
from starpo.ragen.learning.learners.data.tokens import ResponseTokens


@dataclass(frozen=True)
class MiniBatch:
    """What an order sees of a mini-batch.

    Attributes:
        config: The objective.
        tokens: All response tokens of the update.
        is_in_N: Those of the mini-batch. bool, on the CPU
        advantages_N: Advantages as they enter the loss. float32, on the learner's device
        old_logprobs_N: Log-probs under the policy before the first step of the update, nats. float32, on the CPU
        logprobs: Computes the log-probs under the policy as it is now by a forward pass over the mini-batch; 0 outside
            it. float32 [N], on the CPU
    """

    config: ObjectiveConfig
    tokens: ResponseTokens
    is_in_N: Tensor
    advantages_N: Tensor
    old_logprobs_N: Tensor
    logprobs: Callable[[], Tensor]


Steps = Iterator[tuple[Tensor, Tensor]]
"""Steps of a mini-batch: the tokens of each, bool [N], and all advantages, [N]. A step whose tokens have no loss is not
taken."""


def together(minibatch: MiniBatch) -> Steps:
    """All turns in one step."""
    yield minibatch.is_in_N, minibatch.advantages_N
