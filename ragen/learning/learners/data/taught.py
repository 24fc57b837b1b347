"""Trajectories with what a teacher says of their tokens.

teacher_logprobs (dataset), trajectories -> with_teacher -> trajectories -> teacher_logprobs: a column of the update
teacher_top_tokens (dataset) -> with_top_tokens -> top_tokens, for the loss (`update.distillation`)

Legend: N response tokens of the update, K most probable tokens.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

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
    taught = []
    for trajectory, values in zip(trajectories, _by_trajectory(trajectories, scored, "logprobs"), strict=True):
        if len(values) != trajectory.num_response_tokens:
            raise LearnerError(
                f"the teacher scored {len(values)} response tokens of trajectory '{trajectory.trajectory_id}', which "
                f"has {trajectory.num_response_tokens}; expected its log-probs of the same rollout"
            )
        taught.append(replace(trajectory, teacher_logprobs=values.astype(np.float32)))
    return taught


def with_top_tokens(trajectories: Sequence[Trajectory], scored: pa.Table) -> list[Trajectory]:
    """Return the trajectories with the teacher's most probable tokens.

    Args:
        trajectories: Trajectories of an update.
        scored: Dataset `teacher_top_tokens` of at least their turns, rows in any order.
    """
    columns = (_by_trajectory(trajectories, scored, name) for name in ("token_ids", "logprobs"))
    return [
        replace(trajectory, top_token_ids=ids.astype(np.int32), top_logprobs=logprobs.astype(np.float32))
        for trajectory, ids, logprobs in zip(trajectories, *columns, strict=True)
    ]


def _by_trajectory(trajectories: Sequence[Trajectory], scored: pa.Table, name: str) -> list[np.ndarray]:
    """Return the items of a column of lists, those of a trajectory end to end in order of turns."""
    rows: dict[str, list[tuple[int, np.ndarray]]] = {}
    keys = (scored[key].to_pylist() for key in ("trajectory_id", "turn"))
    lists = (row.values.to_numpy(zero_copy_only=False) for row in scored[name])
    for trajectory_id, turn, items in zip(*keys, lists, strict=True):
        rows.setdefault(trajectory_id, []).append((turn, items))
    turns = (sorted(rows.get(one.trajectory_id, []), key=itemgetter(0)) for one in trajectories)
    return [np.concatenate([np.empty(0), *(items for _, items in of_one)]) for of_one in turns]


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


def top_tokens(trajectories: Sequence[Trajectory]) -> tuple[Tensor, Tensor]:
    """Return the teacher's most probable tokens, int64 [N, K], and their log-probs, float32 [N, K], in that order.

    Raises:
        LearnerError: If they do not have equally many for every response token, or none.
    """
    nothing = np.empty(0)
    ids, logprobs = (
        [nothing if values is None else values for values in (getattr(one, name) for one in trajectories)]
        for name in ("top_token_ids", "top_logprobs")
    )
    num_tokens = [trajectory.num_response_tokens for trajectory in trajectories]
    top_k = sum(map(len, ids)) // sum(num_tokens)
    for trajectory, named, number in zip(trajectories, ids, num_tokens, strict=True):
        if not top_k or len(named) != top_k * number:
            raise LearnerError(
                f"the teacher named {len(named)} most probable tokens for the {number} response tokens of trajectory "
                f"'{trajectory.trajectory_id}', and the divergence compares equally many at each: set "
                "teacher.top_k, and let the teacher score the rollout"
            )
    ids_NK, logprobs_NK = (torch.from_numpy(np.concatenate(parts)).reshape(-1, top_k) for parts in (ids, logprobs))
    return ids_NK.long(), logprobs_NK
