"""Credit: from rewards to the advantage of every response token.

    rewards (- KL penalty) -> estimator of the registry -> scale -> whitening -> advantages, value targets

All in float64 on the CPU: it is little work, and long sums of small numbers.
Legend: N response tokens of the update, B trajectories, T response tokens of the longest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.registry import ADVANTAGES, load
from starpo.ragen.learning.learners.tokens import ResponseTokens
from starpo.ragen.learning.learners.trajectories import Trajectory
from starpo.ragen.learning.objectives.advantages import AdvantageEstimate, AdvantageInputs, scale_advantages
from starpo.ragen.learning.objectives.kl import KL_ESTIMATORS
from starpo.ragen.learning.objectives.masks import whiten


@dataclass(frozen=True)
class Credit:
    """What the losses are made from.

    Attributes:
        advantages_N: As they enter the policy's loss. float32
        value_targets_N: What the critic is fitted to. float32; None: no critic.
    """

    advantages_N: Tensor
    value_targets_N: Tensor | None


def assign_credit(
    trajectories: Sequence[Trajectory],
    tokens: ResponseTokens,
    config: UpdateConfig,
    old_logprobs_N: Tensor,
    ref_logprobs_N: Tensor | None,
    values_N: Tensor | None,
) -> Credit:
    """Estimate the advantage of every response token of an update.

    Args:
        trajectories: Those of the update. Ones without response tokens take part in the baselines of their group.
        tokens: Their response tokens.
        config: Which estimator, and how it is scaled.
        old_logprobs_N: The policy's before the first step.
        ref_logprobs_N: The reference's; needed where KL is placed in the reward.
        values_N: The critic's; needed by estimators with a critic.
    """
    rewards_N = tokens.rewards(trajectories, config.reward_placement)
    returns_B = torch.tensor([trajectory.normalised_return for trajectory in trajectories], dtype=torch.float64)
    if config.kl_coefficient > 0 and config.kl_placement == "reward":
        assert ref_logprobs_N is not None
        divergence_N = KL_ESTIMATORS[config.kl_estimator](old_logprobs_N.double(), ref_logprobs_N.double())
        rewards_N = rewards_N - config.kl_coefficient * divergence_N
        returns_B = returns_B - config.kl_coefficient * tokens.sums(divergence_N)
    mask_BT = tokens.rectangle(torch.ones(len(tokens), dtype=torch.bool))
    inputs = AdvantageInputs(
        returns_B=returns_B,
        group_B=_group_index(trajectories),
        rewards_BT=tokens.rectangle(rewards_N),
        mask_BT=mask_BT,
        turn_BT=tokens.rectangle(tokens.turn_N),
        values_BT=None if values_N is None else tokens.rectangle(values_N.double()),
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        gamma_turn=config.gamma_turn,
        lambda_turn=config.lambda_turn,
        options=config.advantage_options,
    )
    estimate: AdvantageEstimate = load(ADVANTAGES, config.advantage)(inputs)
    advantages_BT = scale_advantages(estimate, inputs, config.advantage_scale, config.std_ddof)
    if config.should_whiten:
        advantages_BT = whiten(advantages_BT, mask_BT, config.std_ddof)
    targets_BT = estimate.value_targets_BT
    return Credit(tokens.flat(advantages_BT).float(), None if targets_BT is None else tokens.flat(targets_BT).float())


def _group_index(trajectories: Sequence[Trajectory]) -> Tensor:
    codes: dict[str, int] = {}
    return torch.tensor([codes.setdefault(t.group_id, len(codes)) for t in trajectories], dtype=torch.int64)
