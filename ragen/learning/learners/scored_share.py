"""`ScoredSample`: the part of an update's tokens that the policy scores before and after its steps.

Each scoring is a forward pass: over everything, the two take two fifths of an update without a KL penalty. If the
rollout's engine is exact and the policy is the one that played, the log-probs before the first step are known, and what
the passes still tell (entropy, drift) can be estimated from a share of the groups (`update.scored_share`).

    all tokens -> sample -> policy before: as the rollout's?  yes: the rollout's log-probs are the old ones
                   |                                          no, or in half precision: all tokens are scored
                   +------> policy after

Legend: N response tokens of the update, B trajectories.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.learning.learners.credit import group_index
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.models.scoring import Scores
from starpo.ragen.learning.learners.update_inputs import UpdateInputs

KNOWN_WITHIN = 1e-3
"""Largest difference, nats, of a token's log-prob under the policy from that in the rollout if the latter may stand for
the former."""


@dataclass(frozen=True)
class ScoredSample:
    """Tokens that the policy scores.

    Attributes:
        is_in_N: Whether each token is one of them. bool
        batches: This process's micro-batches of them.
    """

    is_in_N: Tensor
    batches: Sequence[MicroBatch]

    @classmethod
    def everything(cls, num_tokens: int, batches: Sequence[MicroBatch]) -> "ScoredSample":
        """Return a sample of all tokens, which the micro-batches hold."""
        return cls(torch.ones(num_tokens, dtype=torch.bool), batches)

    @property
    def is_all(self) -> bool:
        """Whether it is all tokens."""
        return bool(self.is_in_N.all())

    def only(self, scores: Scores) -> Scores:
        """Return the scores with NaN for tokens outside the sample, without `collision_N` if there are any."""
        if self.is_all:
            return scores
        nan = torch.tensor(torch.nan)
        return Scores(*(torch.where(self.is_in_N, values_N, nan) for values_N in (scores.logprobs_N, scores.entropy_N)))

    def largest_gap(self, logprobs_N: Tensor, others_N: Tensor) -> float:
        """Return the largest absolute difference of log-probs in the sample, nats."""
        return float((logprobs_N - others_N)[self.is_in_N].abs().max())


def scored_trajectories(group_B: Tensor, lengths_B: Tensor, share: float, seed: int) -> np.ndarray:
    """Choose the trajectories to score: all those of some groups, because members of a group share their beginnings.

    Args:
        group_B: Index of each trajectory's group.
        lengths_B: Number of response tokens of each trajectory.
        share: Share of the groups with response tokens; rounded to a number of groups, at least one.
        seed: Seed of the update.

    Returns:
        bool [B]
    """
    groups = np.unique(group_B[lengths_B > 0].numpy())
    generator = np.random.Generator(np.random.PCG64(derive_seed(seed, "scored")))
    chosen = generator.choice(groups, max(1, round(share * len(groups))), replace=False)
    return np.isin(group_B.numpy(), chosen)


def scored_sample(inputs: UpdateInputs, everything: Sequence[MicroBatch]) -> ScoredSample:
    """Choose the tokens of an update that the policy scores (`update.scored_share`).

    Args:
        inputs: The update.
        everything: This process's micro-batches of all its tokens.
    """
    tokens, share = inputs.tokens, inputs.config.scored_share
    if share == 1:
        return ScoredSample.everything(len(tokens), everything)
    is_in_B = scored_trajectories(group_index(inputs.trajectories), tokens.lengths_B, share, inputs.context.seed)
    chosen = np.flatnonzero(is_in_B)
    return ScoredSample(inputs.is_of(chosen), inputs.micro_batches(chosen))
