"""The step of the process reward model (PRM): it learns to prefer the better of two trajectories (iStar, 2509.19199).

    returns of a group -> pairs -> loss -> one step of the PRM -> log-probs -> implicit rewards

The loss compares whole trajectories, and the log-probability of a trajectory is the sum over its tokens, across all of
its contexts. The gradient is therefore that of a weighted sum of token log-probabilities. The weights are known before
the forward pass, so the PRM runs on the same micro-batches as the policy.

Legend: B trajectories, P pairs, N response tokens of the update.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.credit import group_index, normalised_returns
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.models.optimisers import learning_rate_factor
from starpo.ragen.learning.learners.models.scoring import Scores
from starpo.ragen.learning.learners.models.trained_model import TrainedModel
from starpo.ragen.learning.learners.update_inputs import UpdateInputs
from starpo.ragen.learning.objectives.masks import ZERO_STD


def fit(
    inputs: UpdateInputs, model: TrainedModel, old: Scores, batches: Sequence[MicroBatch]
) -> tuple[Tensor, dict[str, float]]:
    """Take one optimiser step of the PRM on the preferences between members of a group.

    Args:
        inputs: The update.
        model: The PRM, which is changed in place.
        old: Scores under the policy before its first step.
        batches: Micro-batches that cover every token once.

    Returns:
        Implicit rewards after the step, beta * (log-probs of the PRM - log-probs of the policy), float64 [N]; and
        metrics: `update/prm_pairs`, and if there are pairs, of the model before the step, `update/prm_loss` (nats per
        pair), `update/prm_accuracy` (share of pairs in which the better trajectory gets the larger implicit reward) and
        `update/prm_gradient_norm`.

    Raises:
        LearnerError: If the gradient is not finite.
    """
    tokens, context, beta = inputs.tokens, inputs.context, inputs.config.prm.beta

    def rewards() -> Tensor:
        return beta * (inputs.score(model, batches).logprobs_N.double() - old.logprobs_N.double())

    before_N = rewards()
    returns_B, group_B = normalised_returns(inputs.trajectories), group_index(inputs.trajectories)
    pairs_P2 = preferences(returns_B, group_B, tokens.lengths_B > 0)
    if not len(pairs_P2):
        return before_N, {"update/prm_pairs": 0.0}
    rewards_B = tokens.sums(before_N).requires_grad_()
    loss = preference_loss(rewards_B, pairs_P2)
    (slope_B,) = torch.autograd.grad(loss, rewards_B)
    weight_N = (beta * slope_B).float()[tokens.trajectory_N].to(inputs.runner.device)

    def weighted(batch: MicroBatch) -> tuple[Tensor, Tensor]:
        (logprobs_M,) = model(batch, context.temperature)
        of_batch = (weight_N[batch.token_M] * logprobs_M).sum()
        return of_batch, of_batch.detach()

    model.accumulate(weighted, batches, inputs.runner)
    norm = model.step(learning_rate_factor(model.config, context.iteration, context.num_iterations))
    if not math.isfinite(norm):
        raise LearnerError(
            f"the gradient of the process reward model has norm {norm}. The stored checkpoint is untouched; lower the "
            "learning rates of update.prm.optimiser and update again"
        )
    better_P, worse_P = rewards_B.detach()[pairs_P2].unbind(1)
    return rewards(), {
        "update/prm_pairs": float(len(pairs_P2)),
        "update/prm_loss": float(loss.detach()),
        "update/prm_accuracy": float((better_P > worse_P).double().mean()),
        "update/prm_gradient_norm": norm,
    }


def preference_loss(rewards_B: Tensor, pairs_P2: Tensor) -> Tensor:
    """Mean of `-log sigmoid(r_better - r_worse)` over pairs (iStar's trajectory DPO; Bradley and Terry).

    Args:
        rewards_B: Implicit rewards of whole trajectories, `beta * (log PRM - log policy)`, as compared in DPO.
        pairs_P2: int; (better, worse) trajectories, from `preferences`. At least one pair.

    Returns:
        Scalar, nats per pair; log 2 if the PRM equals the policy.
    """
    return F.softplus(rewards_B[pairs_P2[:, 1]] - rewards_B[pairs_P2[:, 0]]).mean()


def preferences(returns_B: Tensor, group_B: Tensor, has_tokens_B: Tensor) -> Tensor:
    """Return all pairs of members of a group whose returns differ, the better one first. int [P, 2]

    Args:
        returns_B: Return of each trajectory.
        group_B: int; index of its group.
        has_tokens_B: bool; trajectories without tokens are in no pair.
    """
    is_better_BB = returns_B[:, None] > returns_B[None, :] + ZERO_STD
    is_pair_BB = (group_B[:, None] == group_B[None, :]) & has_tokens_B[:, None] & has_tokens_B[None, :]
    return torch.nonzero(is_better_BB & is_pair_BB)
