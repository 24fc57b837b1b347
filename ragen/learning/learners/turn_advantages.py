"""What several objectives would have said of each turn of an update, before any step.

trajectories, objectives --prepared_objectives--> advantages of the tokens --mean of each turn--> TurnAdvantages

Legend: N response tokens of the update, K turns with response tokens, J objectives.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.learner import Learner, UpdateContext
from starpo.ragen.learning.learners.measuring import at_start, prepared_objectives
from starpo.ragen.learning.learners.update_inputs import UpdateInputs


@dataclass(frozen=True)
class TurnAdvantages:
    """Estimates of the turns that have response tokens.

    Attributes:
        trajectory: Index of each turn's trajectory, in the order given. int64 [K]
        turn: Index of the turn in it. int64 [K]
        advantages: Mean of each objective's advantages over the turn's tokens of `advantage_on`, as they enter its
            loss: scaled, whitened and shaped, so that their sign is the direction in which the update moves the policy.
            NaN for a turn without such tokens. float64 [J, K]
        columns: 'critic' -> its value at the turn's first response token; 'prm' -> sum of the implicit rewards of the
            turn's tokens. Absent without that companion. float64 [K]
    """

    trajectory: Tensor
    turn: Tensor
    advantages: Tensor
    columns: dict[str, Tensor]


def turn_advantages(
    learner: Learner, trajectories: list[Trajectory], context: UpdateContext, configs: Sequence[UpdateConfig]
) -> TurnAdvantages:
    """Compute the advantage that each turn would get from each of several objectives.

    Args:
        learner: A torch learner with the companions that the objectives need (`able_to_measure`).
        trajectories: Trajectories of the update.
        context: Position that the update would have in the run.
        configs: The objectives, at least one.

    Raises:
        LearnerError: If there is nothing to train on, or as for `prepared_objectives`.
    """
    with at_start(learner, trajectories, context) as inputs:
        tokens, index_N, first_K = inputs.tokens, *_turns(inputs)
        num_turns, advantages, columns = len(first_K), [], dict[str, Tensor]()
        for one, prepared in prepared_objectives(inputs, configs):
            mask_N = tokens.mask(one.config.advantage_on)
            advantages_N = torch.where(mask_N, prepared.credit.advantages_N.double(), 0)
            count_K = torch.bincount(index_N[mask_N], minlength=num_turns)
            advantages.append(_sums(advantages_N, index_N, num_turns) / torch.where(count_K > 0, count_K, torch.nan))
            for name, column_N in prepared.start.columns.items():
                if name == "critic":
                    columns[name] = column_N.double()[first_K]
                elif name == "prm" and name not in columns:
                    columns[name] = _sums(column_N.double(), index_N, num_turns)
    return TurnAdvantages(tokens.trajectory_N[first_K], tokens.turn_N[first_K], torch.stack(advantages), columns)


def _turns(inputs: UpdateInputs) -> tuple[Tensor, Tensor]:
    """Index of the turn of each token, int64 [N], and of the first token of each turn, int64 [K]."""
    keys_N2 = torch.stack([inputs.tokens.trajectory_N, inputs.tokens.turn_N], dim=1)
    starts_N = torch.ones(len(keys_N2), dtype=torch.bool)
    starts_N[1:] = (keys_N2[1:] != keys_N2[:-1]).any(dim=1)
    return starts_N.cumsum(0) - 1, torch.nonzero(starts_N)[:, 0]


def _sums(values_N: Tensor, index_N: Tensor, num_turns: int) -> Tensor:
    return torch.zeros(num_turns, dtype=torch.float64).index_add_(0, index_N, values_N)
