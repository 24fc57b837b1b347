"""The estimator that measures: the true advantage of a turn, by continuations from the states before and after it.

credits (stage before the update) -> trajectories -> true_advantages: marks of the turns -> monte_carlo

Legend: B trajectories, T tokens, K turns.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, AdvantageInputs

if TYPE_CHECKING:
    from starpo.ragen.learning.learners.data.trajectories import Trajectory


def monte_carlo(inputs: AdvantageInputs) -> AdvantageEstimate:
    """The true advantage of its turn, on every token (VinePPO, 2410.01679, with turns in place of steps).

        A_k = r_k + V(s_{k+1}) - V(s_k)        V(s) = mean undiscounted return of continuations from s, 0 at the end

    The policy that sampled the rollout plays the continuations. Over a trajectory the advantages add up to its return
    minus V(s_0), which is therefore its baseline.
    """
    assert inputs.marks_BK is not None, "this estimator needs the true advantages of turns"
    return AdvantageEstimate(inputs.on_tokens(inputs.marks_BK), None, inputs.returns_B - inputs.marks_BK.sum(1))


def true_advantages(trajectory: "Trajectory") -> Tensor:
    """Return the true advantage of each turn. float64 [K]

    Raises:
        LearnerError: If it was not measured.
    """
    if trajectory.true_advantages is None:
        raise LearnerError(
            f"the credit of trajectory '{trajectory.trajectory_id}' was not measured, and update.advantage = "
            "'monte_carlo' trains on it: the stage 'credit' of the loop measures that of all groups that the filter "
            "keeps"
        )
    return torch.from_numpy(trajectory.true_advantages)
