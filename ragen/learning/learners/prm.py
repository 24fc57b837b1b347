"""The process reward model: a second policy, which learns what members of a group prefer (iStar, 2509.19199).

    scores of PRM and policy, returns -> `fit`: one step of the PRM -> scores again -> implicit rewards (`credit`)

The loss compares whole trajectories, and a trajectory's log-probability is the sum of its tokens', whatever contexts
they are in. So its gradient is that of a weighted sum of log-probabilities, whose weights are known before the pass: it
is computed by the same micro-batches as a policy's.

Legend: B trajectories, N response tokens of the update.
"""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.adapters import frozen_parameters
from starpo.ragen.learning.learners.batches import MicroBatch
from starpo.ragen.learning.learners.micro_batches import MicroBatchRunner
from starpo.ragen.learning.learners.tokens import ResponseTokens
from starpo.ragen.learning.learners.trained_model import TrainedModel
from starpo.ragen.learning.objectives.implicit_steps import preference_loss, preferences


def twin(policy: PreTrainedModel, *, is_base_shared: bool = True) -> PreTrainedModel:
    """A new process reward model: the policy's weights copied, so that at first every implicit reward is 0.

    Args:
        policy: With its adapters, if it has any: they are copied too.
        is_base_shared: Share the weights that adapters freeze with the policy, instead of copying them.
    """
    return copy.deepcopy(policy, frozen_parameters(policy) if is_base_shared else {})


def fit(
    model: TrainedModel,
    rewards_N: Tensor,
    returns_B: Tensor,
    group_B: Tensor,
    tokens: ResponseTokens,
    batches: Sequence[MicroBatch],
    *,
    beta: float,
    temperature: float,
    factor: float,
    runner: MicroBatchRunner,
) -> dict[str, float]:
    """Take one step towards preferring the better of every two members of a group.

    Args:
        model: The process reward model; changed in place.
        rewards_N: What it pays before the step: beta times its log-probabilities less the policy's. float
        returns_B: Of the trajectories.
        group_B: int; index of each one's group.
        tokens: Their response tokens.
        batches: All of them, once.
        beta: Of the implicit rewards.
        temperature: The rollout's.
        factor: Of the learning rates.
        runner: How the passes are run.

    Returns:
        `update/prm_pairs`; and, where there are any, of the model before the step `update/prm_loss` (nats a pair),
        `update/prm_accuracy` (share of pairs in which it pays the better one more) and `update/prm_gradient_norm`.

    Raises:
        LearnerError: If the gradient is not finite.
    """
    pairs_P2 = preferences(returns_B, group_B, tokens.lengths_B > 0)
    if not len(pairs_P2):
        return {"update/prm_pairs": 0.0}
    rewards_B = tokens.sums(rewards_N).requires_grad_()
    loss = preference_loss(rewards_B, pairs_P2)
    (slope_B,) = torch.autograd.grad(loss, rewards_B)
    weight_N = (beta * slope_B).float()[tokens.trajectory_N].to(runner.device)

    def weighted(batch: MicroBatch) -> tuple[Tensor, float]:
        (logprobs_M,) = model(batch, temperature)
        return (weight_N[batch.token_M] * logprobs_M).sum(), 0.0

    model.accumulate(weighted, batches, runner)
    norm = model.step(factor)
    if not math.isfinite(norm):
        raise LearnerError(
            f"the gradient of the process reward model has norm {norm}. The stored checkpoint is untouched; lower the "
            "learning rates of update.prm.optimiser and update again"
        )
    better_P, worse_P = rewards_B.detach()[pairs_P2].unbind(1)
    return {
        "update/prm_pairs": float(len(pairs_P2)),
        "update/prm_loss": float(loss.detach()),
        "update/prm_accuracy": float((better_P > worse_P).double().mean()),
        "update/prm_gradient_norm": norm,
    }
