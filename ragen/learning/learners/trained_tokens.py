"""Dataset `trained_tokens`: what the ledger of an update noted of each token, made if it is to be stored.

ledger, advantages, entropies -> trained_tokens -> a row per turn

Legend: N response tokens of the update.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.ledger import Ledger
from starpo.schemas.datasets import TRAINED


def trained_tokens(
    ledger: Ledger, tokens: ResponseTokens, trajectories: Sequence[Trajectory], advantages_N: Tensor, entropy_N: Tensor
) -> pa.Table:
    """Build the dataset, a row per turn with response tokens.

    Args:
        ledger: Of the update, after all steps.
        tokens: Response tokens of the update.
        trajectories: Their trajectories.
        advantages_N: As they entered the loss.
        entropy_N: Before the update, nats; those that are NaN are left out.
    """
    visits_N, ratio_N, clipped_N = ledger.means()
    trajectory_N, turn_N = tokens.trajectory_N.numpy(), tokens.turn_N.numpy()
    starts = np.flatnonzero(np.diff(trajectory_N, prepend=-1) | np.diff(turn_N, prepend=-1))
    lengths = np.diff(starts, append=len(trajectory_N))
    is_scored_N = ~entropy_N.isnan()
    of_tokens = {
        "has_loss": (visits_N > 0, lengths),
        "advantages": (advantages_N, lengths),
        "ratios": (torch.where(visits_N > 0, ratio_N, 1), lengths),
        "clip_fractions": (clipped_N, lengths),
        "entropies": (entropy_N[is_scored_N], np.where(is_scored_N.numpy()[starts], lengths, 0)),
    }
    owners = [trajectories[number] for number in trajectory_N[starts]]
    columns: dict[str, pa.Array] = {
        "trajectory_id": pa.array([owner.trajectory_id for owner in owners], pa.string()),
        "group_id": pa.array([owner.group_id for owner in owners], pa.string()),
        "turn": pa.array(turn_N[starts], pa.int32()),
    }
    for name, (values_N, counts) in of_tokens.items():
        kind, offsets = TRAINED.schema.field(name).type, np.append(0, np.cumsum(counts)).astype(np.int32)
        columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values_N.numpy()).cast(kind.value_type), type=kind)
    return pa.table(columns, schema=TRAINED.schema)
