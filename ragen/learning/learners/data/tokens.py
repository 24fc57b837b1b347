"""`ResponseTokens`: all response tokens of an update, concatenated in one fixed order.

Every per-token quantity (log-probs, values, advantages, losses) is an array in this order: trajectories as given, their
segments in time order, the response tokens of each segment. Advantage estimators see the same tokens as a rectangle,
one trajectory per row.

Legend: N response tokens of the update, B trajectories, T response tokens of the longest trajectory, K turns.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.data.spans import KINDS
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory

RewardPlacement = Literal["turn_end", "trajectory_end"]


class ResponseTokens:
    """Flat order of response tokens, with conversions to the rectangle and back.

    Attributes:
        segments: Segments of all trajectories, in order.
        segment_start: Index of the first response token of each segment. int64 [segments]
        segment_trajectory: Index of the trajectory of each segment. int64 [segments]
        lengths_B: Number of response tokens of each trajectory. int64 [B]
        trajectory_N: Index of each token's trajectory. int64
        turn_N: Index of each token's turn. int64
        segment_N: Index of each token's segment. int64
        kind_N: Part of the response that each token belongs to, as in `spans`. int8
        position_N: Index of each token among its trajectory's response tokens. int64
        behaviour_logprobs_N: Log-probs under the behaviour policy. float32
        weight_N: Loss weight of each token, 1 unless search chose its response (`Trajectory`). float32
        images: Images of the segments; None if they are of text alone.
    """

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self.segments: list[Segment] = [segment for trajectory in trajectories for segment in trajectory.segments]
        self.images = trajectories[0].images if trajectories else None
        counts = np.array([segment.response_mask.sum() for segment in self.segments], dtype=np.int64)
        self.segment_start = np.cumsum(counts) - counts
        owners = [len(trajectory.segments) for trajectory in trajectories]
        self.segment_trajectory = np.repeat(np.arange(len(trajectories)), owners)
        for segment, owner in zip(self.segments, self.segment_trajectory.tolist(), strict=True):
            if segment.response_mask[0]:
                raise LearnerError(
                    f"trajectory '{trajectories[owner].trajectory_id}' has a response at the very start of a context, "
                    "with nothing to predict it from. Prompts need at least one token"
                )
        self.trajectory_N = torch.from_numpy(np.repeat(self.segment_trajectory, counts))
        self.segment_N = torch.from_numpy(np.repeat(np.arange(len(self.segments)), counts))
        self.kind_N = torch.from_numpy(_of_responses([s.kind for s in self.segments], self.segments, np.int8))
        self.turn_N = torch.from_numpy(_of_responses([s.turn for s in self.segments], self.segments, np.int64))
        logprobs = [s.behaviour_logprobs for s in self.segments]
        self.behaviour_logprobs_N = torch.from_numpy(_of_responses(logprobs, self.segments, np.float32))
        self.lengths_B = torch.bincount(self.trajectory_N, minlength=len(trajectories))
        weights = [t.turn_weights for t in trajectories]
        first_B = np.cumsum([0, *map(len, weights)])[:-1]  # index of each trajectory's first turn, concatenated
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
        """Undo `rectangle`."""
        return values_BT[self.trajectory_N, self.position_N]

    def sums(self, values_N: Tensor) -> Tensor:
        """Sum over each trajectory's tokens, float64 [B]; 0 for a trajectory without tokens."""
        sums_B = torch.zeros(len(self.lengths_B), dtype=torch.float64)
        return sums_B.index_add_(0, self.trajectory_N, values_N.to(torch.float64))

    def mask(self, which: str) -> Tensor:
        """Mask of the tokens of a kind: 'think', 'answer', 'format', or 'all' for every token. bool [N]"""
        return torch.ones(len(self), dtype=torch.bool) if which == "all" else self.kind_N == KINDS[which]

    def onto(self, mask_N: Tensor, values_N: Tensor) -> Tensor:
        """Move each value outside the mask to the last preceding token in the mask, within the trajectory.

        Args:
            mask_N: bool.
            values_N: Values such as rewards; the sum over a trajectory is preserved.

        Returns:
            [N], 0 outside the mask. Values before the first token in the mask move to that token. If a trajectory has
            no token in the mask, its values move to its last token, which no estimator reads.
        """
        index_N = torch.arange(len(self))
        last_N = torch.where(mask_N, index_N, -1).cummax(0).values
        next_N = torch.where(mask_N, index_N, len(self)).flip(0).cummin(0).values.flip(0)
        ends_B = self.lengths_B.cumsum(0)
        end_N, start_N = ends_B[self.trajectory_N], (ends_B - self.lengths_B)[self.trajectory_N]
        first_N = torch.where(next_N < end_N, next_N, end_N - 1)
        return torch.zeros_like(values_N).index_add_(0, torch.where(last_N >= start_N, last_N, first_N), values_N)

    def rewards(self, trajectories: Sequence[Trajectory], placement: RewardPlacement = "turn_end") -> Tensor:
        """Place each turn's reward on its last response token, or the return on the trajectory's last one.

        With 'turn_end', the reward of a turn without response tokens goes to the last token before it, or to the first
        token of the trajectory if there is none before it. The difference between the normalised and the plain return
        goes to the trajectory's last token, so that the rewards of its tokens add up to its normalised return. With
        'trajectory_end', the whole normalised return is on the last token.

        Args:
            trajectories: The trajectories of the tokens.
            placement: 'turn_end' or 'trajectory_end'.

        Returns:
            float64 [N]
        """
        rewards_N = np.zeros(len(self))
        num_turns = max(len(trajectory.turn_rewards) for trajectory in trajectories)
        token_key = (self.trajectory_N * num_turns + self.turn_N).numpy()  # non-decreasing
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


def trainable_tokens(trajectories: Sequence[Trajectory]) -> ResponseTokens:
    """Return the response tokens of trajectories.

    Raises:
        LearnerError: If there are none.
    """
    tokens = ResponseTokens(trajectories)
    if not len(tokens):
        raise LearnerError(
            f"nothing to train on: {len(trajectories)} trajectories with 0 response tokens. Keep more groups "
            "(settings of filter), or pass the checkpoint on unchanged"
        )
    return tokens


def _of_responses(arrays: list[np.ndarray], segments: list[Segment], dtype: type) -> np.ndarray:
    """Concatenate the elements of `arrays` at response tokens."""
    if not arrays:
        return np.empty(0, dtype=dtype)
    return np.concatenate(arrays)[np.concatenate([s.response_mask for s in segments])].astype(dtype, copy=False)
