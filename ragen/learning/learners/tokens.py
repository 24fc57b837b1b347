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
from starpo.ragen.learning.learners.spans import KINDS
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
        segment_N: Index of each token's segment. int64
        kind_N: What each token is part of, as in `spans`. int8
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
        self.segment_N = torch.from_numpy(np.repeat(np.arange(len(self.segments)), counts))
        self.kind_N = torch.from_numpy(_of_responses([s.kind for s in self.segments], self.segments, np.int8))
        self.turn_N = torch.from_numpy(_of_responses([s.turn for s in self.segments], self.segments, np.int64))
        logprobs = [s.behaviour_logprobs for s in self.segments]
        self.behaviour_logprobs_N = torch.from_numpy(_of_responses(logprobs, self.segments, np.float32))
        self.lengths_B = torch.bincount(self.trajectory_N, minlength=len(trajectories))
        weights = [t.turn_weights for t in trajectories]
        first_B = np.cumsum([0, *map(len, weights)])[:-1]  # of each trajectory's turns, end to end
        turn_index_N = torch.from_numpy(first_B)[self.trajectory_N] + self.turn_N
        self.weight_N = torch.from_numpy(np.concatenate([np.ones(1), *weights])).float()[turn_index_N + 1]
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

    def mask(self, which: str) -> Tensor:
        """Which tokens are 'think', 'answer' or 'format'; 'all': every one. bool [N]"""
        return torch.ones(len(self), dtype=torch.bool) if which == "all" else self.kind_N == KINDS[which]

    def onto(self, mask_N: Tensor, values_N: Tensor) -> Tensor:
        """Move what tokens outside of a mask have to the last token before them in it, of the same trajectory.

        Args:
            mask_N: bool.
            values_N: Such as rewards; a trajectory's sum stays what it is.

        Returns:
            0 outside the mask. What stands before the first token of the mask goes to that one; where a trajectory has
            none in the mask, to its last token, which no estimator reads.
        """
        index_N = torch.arange(len(self))
        last_N = torch.where(mask_N, index_N, -1).cummax(0).values
        next_N = torch.where(mask_N, index_N, len(self)).flip(0).cummin(0).values.flip(0)
        ends_B = self.lengths_B.cumsum(0)
        end_N, start_N = ends_B[self.trajectory_N], (ends_B - self.lengths_B)[self.trajectory_N]
        first_N = torch.where(next_N < end_N, next_N, end_N - 1)
        return torch.zeros_like(values_N).index_add_(0, torch.where(last_N >= start_N, last_N, first_N), values_N)

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
