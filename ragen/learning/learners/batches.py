"""Batches: trajectories split over optimiser steps, segments packed into forward passes.

    trajectories -> split_minibatches -> mini-batches (an optimiser step each; a trajectory is never split)
    segments     -> pack -> micro-batches (a forward and backward pass each), by a budget of tokens

Packing is a matter of memory and speed alone: gradients are sums over micro-batches.
Legend: S segments of a micro-batch, T tokens of its longest segment, M its response tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.learning.learners.tokens import ResponseTokens


@dataclass(frozen=True)
class MicroBatch:
    """Segments of about one length, padded on the right.

    Attention is causal, so padding on the right is seen by no real token: there is no attention mask.

    Attributes:
        token_ids_ST: int64; 0 after a segment's end.
        predictor_M: Where each response token is predicted from, the position before it, as an index into the
            flattened [S * T]. int64
        target_M: The response token's id. int64
        token_M: Its index among the update's response tokens. int64
    """

    token_ids_ST: Tensor
    predictor_M: Tensor
    target_M: Tensor
    token_M: Tensor

    def to(self, device: torch.device) -> "MicroBatch":
        """The same on another device."""
        return MicroBatch(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


def split_minibatches(num_trajectories: int, num_minibatches: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Deal trajectories to mini-batches at random.

    Args:
        num_trajectories: How many there are.
        num_minibatches: How many optimiser steps are asked for.
        seed: The update's.
        epoch: Each pass over the data is split anew.

    Returns:
        Indices of trajectories, rising within a mini-batch, each exactly once. Sizes differ by at most one; where there
        are fewer trajectories than mini-batches, there are as many mini-batches as trajectories.
    """
    generator = np.random.Generator(np.random.PCG64(derive_seed(seed, "deal", epoch)))
    parts = np.array_split(generator.permutation(num_trajectories), max(1, min(num_minibatches, num_trajectories)))
    return [np.sort(part) for part in parts]


def num_steps(num_trajectories: int, config: UpdateConfig) -> int:
    """Optimiser steps of a pass: as asked for, or as many as make equal parts nearest to `minibatch_trajectories`.

    That is n / E rounded, half up, and at least 1: a remainder of less than half of E makes the parts larger, one of at
    least half of it makes them smaller, and nothing is left out.

    Args:
        num_trajectories: n; those with a response token.
        config: The update's.
    """
    size = config.minibatch_trajectories
    return max(1, (2 * num_trajectories + size) // (2 * size)) if size else config.num_minibatches


def pack(lengths: Sequence[int] | np.ndarray, token_budget: int) -> list[np.ndarray]:
    """Pack sequences into rectangles of at most `token_budget` tokens, padding included.

    Args:
        lengths: Tokens of each sequence.
        token_budget: Of a rectangle; a sequence longer than it gets a rectangle of its own.

    Returns:
        Indices of sequences, longest first, each exactly once.
    """
    lengths = np.asarray(lengths)
    order = np.argsort(-lengths, kind="stable")
    packs, start = [], 0
    while start < len(order):
        count = max(1, token_budget // int(lengths[order[start]]))
        packs.append(order[start : start + count])
        start += count
    return packs


def micro_batches(tokens: ResponseTokens, segments: np.ndarray, token_budget: int) -> list[MicroBatch]:
    """Pack some segments of an update.

    Args:
        tokens: The update's response tokens.
        segments: Indices of the segments to pack.
        token_budget: Tokens of a micro-batch, padding included.
    """
    lengths = np.array([len(tokens.segments[index].token_ids) for index in segments])
    return [_collate(tokens, segments[chosen]) for chosen in pack(lengths, token_budget)]


def shared_micro_batches(
    tokens: ResponseTokens, segments: np.ndarray, token_budget: int, rank: int, num_ranks: int
) -> list[MicroBatch]:
    """Pack one rank's share of some segments; all ranks get equally many micro-batches.

    Segments are shared out by length, longest first, so shares differ little in tokens. Passes over a model that is
    sharded over ranks must be made by all of them at once: where a rank has fewer micro-batches than another it gets
    empty ones, of one token and no response, whose losses and gradients are 0.

    Args:
        tokens: The update's response tokens.
        segments: Indices of the segments to pack, of all ranks.
        token_budget: Tokens of a rank's micro-batch, padding included.
        rank: Whose share.
        num_ranks: Ranks in all; with 1 this is `micro_batches`.
    """
    lengths = np.array([len(tokens.segments[index].token_ids) for index in segments])
    order = np.argsort(-lengths, kind="stable")
    num_batches = max(len(pack(lengths[order[r::num_ranks]], token_budget)) for r in range(num_ranks))
    own = order[rank::num_ranks]
    batches = micro_batches(tokens, segments[own], token_budget) if len(own) else []
    return batches + [_empty() for _ in range(num_batches - len(batches))]


def _empty() -> MicroBatch:
    nothing = torch.empty(0, dtype=torch.int64)
    return MicroBatch(torch.zeros((1, 1), dtype=torch.int64), nothing, nothing, nothing)


def _collate(tokens: ResponseTokens, segments: np.ndarray) -> MicroBatch:
    width = max(len(tokens.segments[index].token_ids) for index in segments)
    token_ids_ST = np.zeros((len(segments), width), dtype=np.int64)
    predictors, targets, indices = [], [], []
    for row, index in enumerate(segments):
        segment = tokens.segments[index]
        positions = np.flatnonzero(segment.response_mask)
        token_ids_ST[row, : len(segment.token_ids)] = segment.token_ids
        predictors.append(row * width + positions - 1)
        targets.append(segment.token_ids[positions])
        indices.append(tokens.segment_start[index] + np.arange(len(positions)))
    arrays = (token_ids_ST, *(np.concatenate(parts) for parts in (predictors, targets, indices)))
    return MicroBatch(*(torch.from_numpy(array) for array in arrays))
