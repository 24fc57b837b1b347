"""Trajectories with the true advantages of their turns, as the stage `credit` measured them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.data.trajectories import Trajectory


def with_credits(trajectories: Sequence[Trajectory], credits: pa.Table) -> list[Trajectory]:
    """Return the trajectories with the true advantages of their turns.

    Args:
        trajectories: Trajectories of an update.
        credits: Dataset `credits` of at least their turns, rows in any order.

    Raises:
        LearnerError: If it does not have every turn of a trajectory once.
    """
    rows: dict[str, list[tuple[int, float]]] = {}
    columns = (credits[name].to_pylist() for name in ("trajectory_id", "turn", "advantage"))
    for trajectory_id, turn, advantage in zip(*columns, strict=True):
        rows.setdefault(trajectory_id, []).append((turn, advantage))
    credited = []
    for trajectory in trajectories:
        turns = sorted(rows.get(trajectory.trajectory_id, []))
        if [turn for turn, _ in turns] != list(range(len(trajectory.turn_rewards))):
            raise LearnerError(
                f"the credits have {len(turns)} turns of trajectory '{trajectory.trajectory_id}', which has "
                f"{len(trajectory.turn_rewards)}; expected each of them once, measured on the same rollout and filter"
            )
        values = np.array([advantage for _, advantage in turns], dtype=np.float64)
        credited.append(replace(trajectory, true_advantages=values))
    return credited
