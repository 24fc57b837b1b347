"""`ScoredInputs`: inputs of estimators, with the columns of all companion models of the update.

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
    """

    columns_BT: Mapping[str, Tensor] = field(default_factory=dict)
