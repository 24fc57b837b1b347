"""`ScoredInputs`: inputs of estimators, with the columns of all companion models and the components of the reward.

Legend: B trajectories, T tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from starpo.ragen.learning.objectives.estimates import AdvantageInputs


@dataclass(frozen=True)
class ScoredInputs(AdvantageInputs):
    """What a learner gives to estimators.

    Attributes:
        columns_BT: Name of a companion -> its number for each token, float64. Those of the critic and of the process
            reward model are also `values_BT` and `implicit_rewards_BT`, which the estimators here read.
        component_returns: Component of the reward -> what it paid over each trajectory, float64 [B]; empty unless the
            estimator needs 'components'.
    """

    columns_BT: Mapping[str, Tensor] = field(default_factory=dict)
    component_returns: Mapping[str, Tensor] = field(default_factory=dict)
