"""`PaidTrajectory`: a trajectory with what each component of the reward paid over it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from starpo.ragen.learning.learners.data.trajectories import Trajectory


@dataclass(frozen=True)
class PaidTrajectory(Trajectory):
    """A trajectory of an objective that looks at the components of the reward.

    Attributes:
        component_returns: Component -> sum of its values over the turns, before any normalisation.
    """

    component_returns: Mapping[str, float] = field(default_factory=dict)


def with_components(trajectories: Sequence[Trajectory], rewards: pa.Table) -> list[Trajectory]:
    """Return the trajectories with their components.

    Args:
        trajectories: Trajectories of an update.
        rewards: Dataset `rewards` of at least their turns.
    """
    returns: dict[str, dict[str, float]] = {}
    columns = ["trajectory_id", "component_names", "component_values"]
    for trajectory_id, names, values in zip(*(rewards[column].to_pylist() for column in columns), strict=True):
        paid = returns.setdefault(trajectory_id, {})
        for name, value in zip(names, values, strict=True):
            paid[name] = paid.get(name, 0.0) + value
    return [
        PaidTrajectory(**vars(trajectory), component_returns=returns[trajectory.trajectory_id])
        for trajectory in trajectories
    ]
