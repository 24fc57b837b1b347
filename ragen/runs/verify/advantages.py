"""Stored advantages, compared with those that the stored rewards give.

    turns, rewards, selection -> trajectories -> estimator -> advantage_differences <- samples

Without a companion model, probabilities of tokens or a KL penalty in the reward, advantages are
arithmetic on stored numbers: no policy takes part, so no machine and no version excuses others.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import torch

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.learners.credit import assign_credit
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.models.scoring import Scores

_TOLERANCE = 1e-5
"""Of advantages, which are stored as means of float32 numbers: relative to the largest, if that is above 1."""


def advantage_differences(
    trajectories: Sequence[Trajectory], kept_share: float, config: UpdateConfig, samples: pa.Table
) -> Iterator[str]:
    """Compare group, return and advantage of each row of `samples` with what the trajectories give.

    Args:
        trajectories: Trajectories of the update, at least one with a response token.
        kept_share: Share of the played groups that are trained on.
        config: Settings of the update, whose estimator needs none of these.
        samples: Dataset `samples` of the update.

    Yields:
        A sentence for each row that differs. Rows of other trajectories are left to `token_differences`.
    """
    tokens = ResponseTokens(trajectories)
    unknown = Scores(*torch.full((2, len(tokens)), torch.nan))
    of_tokens = assign_credit(trajectories, tokens, config, unknown, {}, kept_share).advantages_N
    advantages = tokens.sums(of_tokens) / tokens.lengths_B.clamp(min=1)
    if not bool(advantages.isfinite().all()):  # an estimator of one's own that reads probabilities
        return
    allowed = _TOLERANCE * max(float(advantages.abs().max()), 1.0)
    rows = {row["trajectory_id"]: row for row in samples.to_pylist()}
    for trajectory, advantage in zip(trajectories, advantages.tolist(), strict=True):
        row = rows.get(trajectory.trajectory_id)
        if row is None:
            continue
        expected = {"group_id": trajectory.group_id, "trajectory_return": trajectory.trajectory_return}
        differing = [name for name, value in expected.items() if row[name] != value]
        if not abs(row["advantage"] - advantage) <= allowed:
            expected["advantage"] = advantage
            differing.append("advantage")
        for name in differing:
            yield (
                f"trajectory {quoted(trajectory.trajectory_id)}: {name} is {quoted(row[name])}, "
                f"the stored rewards give {quoted(expected[name])}"
            )
