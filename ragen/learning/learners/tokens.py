"""`ResponseTokens`: all response tokens of an update, end to end, in one fixed order.

Everything that is known of a token (log-probs, values, advantages, losses) is an array over this order: trajectories as
given, their segments in time order, the response tokens of each. Advantage estimators see the same tokens as a
rectangle, one trajectory a row.

Legend: N response tokens of the update, B trajectories, T response tokens of the longest trajectory, K turns.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.trajectories import Segment, Trajectory

RewardPlacement = Literal["turn_end", "trajectory_end"]


class ResponseTokens:
    """The flat order of tokens, and the way to the rectangle and back.

    Attributes:
        segments: Of all trajectories, in order.
        segment_start: Index of the first response token of each segment. int64 [segments]
        segment_trajectory: Index of the trajectory of each segment. int64 [segments]
        lengths_B: Response tokens of each trajectory. int64 [B]
        trajectory_N: Index of each token's trajectory. int64
        turn_N: Index of each token's turn. int64
        position_N: Index of each token among its trajectory's response tokens. int64
        behaviour_logprobs_N: The sampler's. float32
        weight_N: What each token's loss is multiplied by, 1 unless search chose its response (`Trajectory`). float32
    """

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self.segments: list[Segment] = [segment for trajectory in trajectories for segment in trajectory.segments]
        counts = np.array([segment.response_mask.sum() for segment in self.segments], dtype=np.int64)
        self.segment_start = np.cumsum(counts) - counts
        owners = [len(trajectory.segments) for trajectory in trajectories]
        self.segment_trajectory = np.repeat(np.arange(len(trajectories)), owners)
        for segment, owner in zip(self.segments, self.segment_trajectory.tolist(), strict=True):
            if segment.response_mask[0]:
                raise LearnerError(
                    f"trajectory '{trajectories[owner].trajectory_id}' has a response at the very start of a context: "
                    "there is nothing to predict it from. Prompts must hold at least one token"
                )
        self.trajectory_N = torch.from_numpy(np.repeat(self.segment_trajectory, counts))
        self.turn_N = torch.from_numpy(_of_responses([s.turn for s in self.segments], self.segments, np.int64))
        logprobs = [s.behaviour_logprobs for s in self.segments]
        self.behaviour_logprobs_N = torch.from_numpy(_of_responses(logprobs, self.segments, np.float32))
        self.weight_N = torch.ones(len(self.trajectory_N))
        for index, trajectory in enumerate(trajectories):
            if trajectory.turn_weights is not None:
                own_N = self.trajectory_N == index
                self.weight_N[own_N] = torch.from_numpy(trajectory.turn_weights).float()[self.turn_N[own_N]]
        self.lengths_B = torch.bincount(self.trajectory_N, minlength=len(trajectories))
        starts_B = self.lengths_B.cumsum(0) - self.lengths_B
        self.position_N = torch.arange(len(self)) - starts_B[self.trajectory_N]

    def __len__(self) -> int:
        return len(self.trajectory_N)

    def rectangle(self, values_N: Tensor) -> Tensor:
        """Lay values out as [B, T]; 0 (or False) after a trajectory's last token."""
        rows, columns = len(self.lengths_B), int(self.lengths_B.max()) if len(self) else 0
        values_BT = values_N.new_zeros((rows, columns))
        values_BT[self.trajectory_N, self.position_N] = values_N
        return values_BT

    def flat(self, values_BT: Tensor) -> Tensor:
        """The inverse of `rectangle`."""
        return values_BT[self.trajectory_N, self.position_N]

    def sums(self, values_N: Tensor) -> Tensor:
        """Sum over each trajectory's tokens, float64 [B]; 0 for a trajectory without any."""
        sums_B = torch.zeros(len(self.lengths_B), dtype=torch.float64)
        return sums_B.index_add_(0, self.trajectory_N, values_N.to(torch.float64))

    def rewards(self, trajectories: Sequence[Trajectory], placement: RewardPlacement = "turn_end") -> Tensor:
        """Put each turn's reward on its last response token, or the return on the trajectory's last one.

        With 'turn_end' the reward of a turn without response tokens goes to the last token before it (the first token
        of the trajectory where there is none), so that what the tokens of a trajectory earn adds up to its return. The
        difference that normalisation made to the return goes to its last token. With 'trajectory_end' all of the
        normalised return is there.

        Args:
            trajectories: Those of the tokens.
            placement: Which of the two.

        Returns:
            float64 [N]
        """
        rewards_N = np.zeros(len(self))
        if not len(self):
            return torch.from_numpy(rewards_N)
        num_turns = max(len(trajectory.turn_rewards) for trajectory in trajectories)
        token_key = (self.trajectory_N * num_turns + self.turn_N).numpy()  # never falls
        for index, trajectory in enumerate(trajectories):
            if self.lengths_B[index] == 0:
                continue
            keys = index * num_turns + np.arange(len(trajectory.turn_rewards))
            ends = np.searchsorted(token_key, keys, side="right") - 1
            first, last = np.searchsorted(token_key, [index * num_turns, (index + 1) * num_turns]) - [0, 1]
            if placement == "trajectory_end":
                rewards_N[last] = trajectory.normalised_return
                continue
            np.add.at(rewards_N, np.maximum(ends, first), trajectory.turn_rewards)
            rewards_N[last] += trajectory.normalised_return - trajectory.trajectory_return
        return torch.from_numpy(rewards_N)


def _of_responses(arrays: list[np.ndarray], segments: list[Segment], dtype: type) -> np.ndarray:
    """The elements of `arrays` at response tokens, end to end."""
    if not arrays:
        return np.empty(0, dtype=dtype)
    return np.concatenate(arrays)[np.concatenate([s.response_mask for s in segments])].astype(dtype, copy=False)
