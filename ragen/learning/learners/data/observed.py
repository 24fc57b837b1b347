"""`ObservedTokens`: contexts in which not only responses are predicted, but also what the environment shows after them.

    prompt  RESPONSE  observation  RESPONSE    ->    prompt  [RESPONSE  OBSERVATION  RESPONSE]

Legend: N response tokens of an update, E the same and the observations between them.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.learning.learners.data.tokens import ResponseTokens


@dataclass(frozen=True)
class _Predicted:
    token_ids: np.ndarray
    response_mask: np.ndarray


class ObservedTokens:
    """Implements `batches.Contexts`: "responses" are all tokens from a context's first response to its last.

    What lies between two responses is the environment's answer in the words of the chat template.

    Attributes:
        segments: The contexts.
        segment_start: Index of the first predicted token of each context. int64
        images: Images of the contexts; None if they are of text alone.
        response_E: Index of each predicted token among the response tokens; -1 for an observation. int64
        trajectory_E: Index of each predicted token's trajectory. int64
    """

    def __init__(self, tokens: ResponseTokens) -> None:
        """Build the contexts from the response tokens of an update."""
        masks = [segment.response_mask for segment in tokens.segments]
        predicted = [np.logical_or.accumulate(mask) for mask in masks]  # a context ends with its last response
        self.segments = [_Predicted(one.token_ids, mask) for one, mask in zip(tokens.segments, predicted, strict=True)]
        self.images = tokens.images
        counts = np.array([mask.sum() for mask in predicted], dtype=np.int64)
        self.segment_start = np.cumsum(counts) - counts
        is_response_E = np.concatenate([mask[shown] for mask, shown in zip(masks, predicted, strict=True)])
        self.response_E = torch.from_numpy(np.where(is_response_E, np.cumsum(is_response_E) - 1, -1))
        self.trajectory_E = torch.from_numpy(np.repeat(tokens.segment_trajectory, counts))

    def num_observations(self, trajectory_N: Tensor, num_trajectories: int) -> int:
        """Count the observation tokens of the trajectories that some response tokens belong to.

        Args:
            trajectory_N: Index of the trajectory of each of these response tokens.
            num_trajectories: Trajectories of the update.
        """
        is_in_B = torch.zeros(num_trajectories, dtype=torch.bool)
        is_in_B[trajectory_N] = True
        return int((is_in_B[self.trajectory_E] & (self.response_E < 0)).sum())
