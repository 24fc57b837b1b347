"""Trajectories with what a teacher says of their tokens.

teacher_logprobs (dataset), trajectories -> with_teacher -> trajectories -> teacher_logprobs: a column of the update
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.data.trajectories import Trajectory


def with_teacher(trajectories: Sequence[Trajectory], scored: pa.Table) -> list[Trajectory]:
    """Return the trajectories with the teacher's log-probs.

    Args:
        trajectories: Trajectories of an update.
        scored: Dataset `teacher_logprobs` of at least their turns, rows in any order.

    Raises:
        LearnerError: If it does not have a log-prob for each of their response tokens.
    """
    rows: dict[str, list[tuple[int, list[float]]]] = {}
    columns = (scored[name].to_pylist() for name in ("trajectory_id", "turn", "logprobs"))
    for trajectory_id, turn, logprobs in zip(*columns, strict=True):
        rows.setdefault(trajectory_id, []).append((turn, logprobs))
    taught = []
    for trajectory in trajectories:
        turns = sorted(rows.get(trajectory.trajectory_id, []))
        values = np.array([value for _, logprobs in turns for value in logprobs], dtype=np.float32)
        if len(values) != trajectory.num_response_tokens:
            raise LearnerError(
                f"the teacher scored {len(values)} response tokens of trajectory '{trajectory.trajectory_id}', which "
                f"has {trajectory.num_response_tokens}; expected its log-probs of the same rollout"
            )
        taught.append(replace(trajectory, teacher_logprobs=values))
    return taught


def teacher_logprobs(trajectories: Sequence[Trajectory]) -> Tensor:
    """Return the log-probs of all response tokens, in the order of `ResponseTokens`. float32 [N]

    Raises:
        LearnerError: If a trajectory was not scored by a teacher.
    """
    columns = [trajectory.teacher_logprobs for trajectory in trajectories]
    missing = [one.trajectory_id for one, column in zip(trajectories, columns, strict=True) if column is None]
    if missing:
        raise LearnerError(
            f"trajectory '{missing[0]}' has no log-probs of a teacher, which update.distillation_coefficient weighs: "
            "let a teacher score the rollout first (docs/distillation.md)"
        )
    return torch.from_numpy(np.concatenate([column for column in columns if column is not None]))
