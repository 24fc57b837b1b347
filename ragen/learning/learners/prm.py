"""The process reward model (PRM): a second policy, trained on preferences within groups (iStar, 2509.19199).

    scores of PRM and policy, returns -> `fit`: one step of the PRM -> scores again -> implicit rewards (`credit`)

The loss compares whole trajectories, and the log-probability of a trajectory is the sum over its tokens, across all of
its contexts. The gradient is therefore that of a weighted sum of token log-probabilities. The weights are known before
the forward pass, so the PRM runs on the same micro-batches as the policy.

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
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.tokens import ResponseTokens
from starpo.ragen.learning.learners.trained_model import TrainedModel
from starpo.ragen.learning.objectives.implicit_steps import preference_loss, preferences


def twin(policy: PreTrainedModel, *, is_base_shared: bool = True) -> PreTrainedModel:
    """Create a process reward model as a copy of the policy, so that every implicit reward is initially 0.

    Args:
        policy: The policy; its adapters, if any, are copied too.
        is_base_shared: Share the weights frozen by adapters with the policy instead of copying them.
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
    """Take one optimiser step on the preferences between members of a group.

    Args:
        model: The process reward model; changed in place.
        rewards_N: Implicit rewards before the step: beta * (log-probs of the PRM - log-probs of the policy). float
        returns_B: Return of each trajectory.
        group_B: Index of each trajectory's group. int
        tokens: Response tokens of the trajectories.
        batches: Micro-batches that cover every token once.
        beta: Scale of the implicit rewards.
        temperature: Temperature of the rollout.
        factor: Multiplies the learning rates.
        runner: Runs the passes.

    Returns:
        `update/prm_pairs`. If there are pairs, also metrics of the model before the step: `update/prm_loss` (nats per
        pair), `update/prm_accuracy` (share of pairs in which the better trajectory gets the larger implicit reward)
        and `update/prm_gradient_norm`.

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
