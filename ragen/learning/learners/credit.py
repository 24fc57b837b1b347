"""Credit: from rewards to the advantage of every response token.

    rewards (- KL penalty) -> estimator of the registry -> scale -> whitening -> shaping -> advantages, value targets

All in float64 on the CPU: it is cheap, and involves long sums of small numbers.
Legend: N response tokens of the update, B trajectories, T response tokens of the longest, K turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from starpo.ragen.config.plugin_calls import plugin_call
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.lookup import attached, load
from starpo.ragen.core.registry import ADVANTAGES, SHAPINGS
from starpo.ragen.learning.learners.data.paid import PaidTrajectory
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.models.scoring import Scores
from starpo.ragen.learning.objectives.columns import ScoredInputs
from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, scale_advantages
from starpo.ragen.learning.objectives.kl import KL_ESTIMATORS
from starpo.ragen.learning.objectives.masks import ZERO_STD, whiten


@dataclass(frozen=True)
class Credit:
    """Advantages and value targets of an update.

    Attributes:
        advantages_N: Advantages as they enter the policy's loss; 0 for tokens outside the mask. float32
        value_targets_N: Targets that the critic is fitted to. float32; None without a critic.
        value_mask_N: Tokens at which the critic is fitted. bool; None with `value_targets_N`.
    """

    advantages_N: Tensor
    value_targets_N: Tensor | None
    value_mask_N: Tensor | None

    def explained_variance(self, values_N: Tensor) -> dict[str, float]:
        """Compute the share of the targets' variance that the critic explains, over the tokens at which it is fitted.

        Args:
            values_N: The critic's values.

        Returns:
            `update/explained_variance`; empty if nothing is fitted, or the targets do not vary.
        """
        if self.value_targets_N is None or self.value_mask_N is None:
            return {}
        targets_N, values_N = (each_N[self.value_mask_N].double() for each_N in (self.value_targets_N, values_N))
        variance = float(targets_N.var(correction=0)) if len(targets_N) else 0.0
        residual = float((targets_N - values_N).var(correction=0)) if len(targets_N) else 0.0
        return {"update/explained_variance": 1 - residual / variance} if variance > ZERO_STD**2 else {}


def assign_credit(
    trajectories: Sequence[Trajectory],
    tokens: ResponseTokens,
    config: UpdateConfig,
    old: Scores,
    columns: Mapping[str, Tensor],
    kept_share: float = 1.0,
) -> Credit:
    """Estimate the advantage of every response token of an update.

    Args:
        trajectories: Trajectories of the update. Those without response tokens count in the baselines of their group.
        tokens: Their response tokens.
        config: Settings of the estimator, its scale and shaping.
        old: Scores of the tokens under the policy before the first step.
        columns: Name of a companion -> its number for each token, [N]: what the estimator needs, and 'reference', its
            log-probs, if KL is placed in the reward; 'teacher' in distillation.
        kept_share: Share of the played groups that are trained on.
    """
    rewards_N = tokens.rewards(trajectories, config.reward_placement if config.needs_critic else "turn_end")
    returns_B = normalised_returns(trajectories)
    if config.kl_coefficient > 0 and config.kl_placement == "reward":
        divergence_N = KL_ESTIMATORS[config.kl_estimator](old.logprobs_N.double(), columns["reference"].double())
        rewards_N = rewards_N - config.kl_coefficient * divergence_N
        returns_B = returns_B - config.kl_coefficient * tokens.sums(divergence_N)
    mask_N = tokens.mask(config.advantage_on)
    mask_BT = tokens.rectangle(mask_N)

    def rectangle(values_N: Tensor | None) -> Tensor | None:
        return None if values_N is None else tokens.rectangle(values_N.double())

    columns_BT = {name: tokens.rectangle(values_N.double()) for name, values_N in columns.items()}
    inputs = ScoredInputs(
        returns_B=returns_B,
        group_B=group_index(trajectories),
        rewards_BT=tokens.rectangle(tokens.onto(mask_N, rewards_N)),
        mask_BT=mask_BT,
        turn_BT=tokens.rectangle(tokens.turn_N),
        values_BT=columns_BT.get("critic"),
        state_BK=_turns([torch.from_numpy(trajectory.states) for trajectory in trajectories], -1),
        is_answer_BT=tokens.rectangle(tokens.mask("answer")),
        marks_BK=_marks(trajectories, config.advantage),
        greedy_returns_B=_greedy_returns(trajectories, returns_B) if "greedy" in config.needs else None,
        logprobs_BT=rectangle(old.logprobs_N),
        collision_BT=rectangle(old.collision_N),
        implicit_rewards_BT=columns_BT.get("prm"),
        kept_share=kept_share,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        gamma_turn=config.gamma_turn,
        lambda_turn=config.lambda_turn,
        options=config.advantage_options,
        columns_BT=columns_BT,
        component_returns=_component_returns(trajectories) if "components" in config.needs else {},
    )
    with plugin_call("estimator", ADVANTAGES, config.advantage):
        estimate: AdvantageEstimate = load(ADVANTAGES, config.advantage)(inputs)
    advantages_BT = scale_advantages(estimate, inputs, config.advantage_scale, config.std_ddof)
    if config.should_whiten:
        advantages_BT = whiten(advantages_BT, mask_BT, config.std_ddof)
    if config.distills_top_tokens:
        advantages_BT = config.reward_coefficient * advantages_BT
    elif config.distillation_coefficient > 0:
        from starpo.ragen.learning.objectives.distillation import distilled

        weights = config.distillation_coefficient, config.reward_coefficient
        old_BT = tokens.rectangle(old.logprobs_N.double())
        advantages_BT = distilled(advantages_BT, columns_BT["teacher"], old_BT, mask_BT, *weights)
    for name in config.shaping:
        with plugin_call("shaping", SHAPINGS, name):
            advantages_BT = load(SHAPINGS, name)(advantages_BT, inputs)
    targets_BT, value_mask_BT = estimate.value_targets_BT, estimate.value_mask_BT
    return Credit(
        tokens.flat(advantages_BT).float(),
        None if targets_BT is None else tokens.flat(targets_BT).float(),
        None if targets_BT is None else tokens.flat(mask_BT if value_mask_BT is None else value_mask_BT),
    )


def _component_returns(trajectories: Sequence[Trajectory]) -> dict[str, Tensor]:
    """Return of each component of the reward, float64 [B]; 0 where a trajectory has no such component."""
    paid = [trajectory.component_returns for trajectory in trajectories if isinstance(trajectory, PaidTrajectory)]
    assert len(paid) == len(trajectories), "this estimator needs the components of the reward"
    names = dict.fromkeys(name for returns in paid for name in returns)
    return {name: torch.tensor([returns.get(name, 0.0) for returns in paid], dtype=torch.float64) for name in names}


def _marks(trajectories: Sequence[Trajectory], advantage: str) -> Tensor | None:
    """What the estimator's own `marks` says of each turn, float64 [B, K]; None if it has none."""
    marks = attached(ADVANTAGES, advantage, "marks")
    if marks is None:
        return None
    rows = [torch.as_tensor(marks(trajectory), dtype=torch.float64) for trajectory in trajectories]
    for row, trajectory in zip(rows, trajectories, strict=True):
        if row.shape != trajectory.turn_rewards.shape:
            raise LearnerError(
                f"the marks of estimator '{advantage}' have shape {list(row.shape)} for the "
                f"{len(trajectory.turn_rewards)} turns of trajectory '{trajectory.trajectory_id}'; expected one a turn"
            )
    return _turns(rows, 0)


def _turns(rows: Sequence[Tensor], missing: int) -> Tensor:
    """Pad per-turn values of each trajectory to [B, K]."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=missing)


def _greedy_returns(trajectories: Sequence[Trajectory], returns_B: Tensor) -> Tensor:
    """Return of the greedy rollout of each trajectory's group, [B]; the trajectory's own if that ended in an error."""
    given = [trajectory.greedy_return for trajectory in trajectories]
    greedy_B = torch.tensor([0.0 if value is None else value for value in given], dtype=torch.float64)
    return torch.where(torch.tensor([value is None for value in given]), returns_B, greedy_B)


def normalised_returns(trajectories: Sequence[Trajectory]) -> Tensor:
    """Normalised return of each trajectory, float64 [B]."""
    return torch.tensor([trajectory.normalised_return for trajectory in trajectories], dtype=torch.float64)


def group_index(trajectories: Sequence[Trajectory]) -> Tensor:
    """Index of the group of each trajectory, in order of first appearance. int64 [B]"""
    codes: dict[str, int] = {}
    return torch.tensor([codes.setdefault(t.group_id, len(codes)) for t in trajectories], dtype=torch.int64)
