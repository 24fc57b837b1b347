"""Batches: trajectories split over optimiser steps, segments packed into forward passes.

    trajectories -> split_minibatches -> mini-batches (an optimiser step each; a trajectory is never split)
    segments     -> prefix_rows -> pack -> micro-batches (a forward and backward pass each), by a budget of tokens

Packing is a matter of memory and speed alone: gradients are sums over micro-batches.
Legend: S rows of a micro-batch, T tokens of its longest row, P different positions of it that predict response tokens,
M response tokens that its rows stand for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.learning.learners.prefix_rows import PrefixRow, prefix_rows
from starpo.ragen.learning.learners.tokens import ResponseTokens


@dataclass(frozen=True)
class MicroBatch:
    """Rows of about one length, padded on the right.

    Attributes:
        token_ids_ST: int64; 0 after a row's end.
        position_ST: Of each token in its own context; None: its place in the row. int64
        sees_STT: What each token attends to; None: all before it, and padding on the right is seen by no real token.
        predictor_P: Where response tokens are predicted from, as indices into the flattened [S * T]. int64
        prediction_M: Index of each response token's predictor among those P. int64
        target_M: The response token's id. int64
        token_M: Its index among the update's response tokens. int64
    """

    token_ids_ST: Tensor
    position_ST: Tensor | None
    sees_STT: Tensor | None
    predictor_P: Tensor
    prediction_M: Tensor
    target_M: Tensor
    token_M: Tensor

    def to(self, device: torch.device) -> "MicroBatch":
        """The same on another device."""
        tensors = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items() if tensor is not None})


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


def micro_batches(
    tokens: ResponseTokens,
    segments: np.ndarray,
    token_budget: int,
    *,
    row_tokens: int = 0,
    rank: int = 0,
    num_ranks: int = 1,
) -> list[MicroBatch]:
    """Pack one rank's share of some segments; all ranks get equally many micro-batches.

    Rows are shared out by length, longest first, so shares differ little in tokens. Passes over a model that is sharded
    over ranks must be made by all of them at once: where a rank has fewer micro-batches than another it gets empty
    ones, of one token and no response, whose losses and gradients are 0.

    Args:
        tokens: The update's response tokens.
        segments: Indices of the segments to pack, of all ranks.
        token_budget: Tokens of a rank's micro-batch, padding included.
        row_tokens: Of a row in which different segments share their beginning (`prefix_rows`); 0: only equal ones do.
        rank: Whose share.
        num_ranks: Ranks in all.
    """
    rows = prefix_rows([segment.token_ids for segment in tokens.segments], segments, min(row_tokens, token_budget))
    lengths = np.array([len(row) for row in rows])
    order = np.argsort(-lengths, kind="stable")
    num_batches = max(len(pack(lengths[order[r::num_ranks]], token_budget)) for r in range(num_ranks))
    own = order[rank::num_ranks]
    batches = [_collate(tokens, [rows[own[i]] for i in chosen]) for chosen in pack(lengths[own], token_budget)]
    return batches + [_empty() for _ in range(num_batches - len(batches))]


def _empty() -> MicroBatch:
    nothing = torch.empty(0, dtype=torch.int64)
    return MicroBatch(torch.zeros((1, 1), dtype=torch.int64), None, None, nothing, nothing, nothing, nothing)


def _collate(tokens: ResponseTokens, rows: list[PrefixRow]) -> MicroBatch:
    width = max(map(len, rows))
    token_ids_ST = np.zeros((len(rows), width), dtype=np.int64)
    predictors, targets, indices = [], [], []
    for number, row in enumerate(rows):
        token_ids_ST[number, : len(row)] = row.token_ids
        for index, branch in row.segments:
            segment, (_, places) = tokens.segments[index], row.branches[branch]
            responses = np.flatnonzero(segment.response_mask)
            predictors.append(number * width + places[responses - 1])
            targets.append(segment.token_ids[responses])
            indices.append(tokens.segment_start[index] + np.arange(len(responses)))
    predictor_P, prediction_M = np.unique(np.concatenate(predictors), return_inverse=True)
    position_ST = sees_STT = None
    if not all(row.is_plain for row in rows):
        position_ST, sees_STT = map(torch.from_numpy, _attention(rows, width))
    arrays = (predictor_P, prediction_M, np.concatenate(targets), np.concatenate(indices))
    return MicroBatch(torch.from_numpy(token_ids_ST), position_ST, sees_STT, *map(torch.from_numpy, arrays))


def _attention(rows: list[PrefixRow], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions, int64 [S, T], and what is seen, bool [S, T, T]; padding sees itself, since nothing is no attention."""
    position_ST = np.zeros((len(rows), width), dtype=np.int64)
    sees_STT = np.zeros((len(rows), width, width), dtype=bool)
    sees_STT[:, np.arange(width), np.arange(width)] = True
    for number, row in enumerate(rows):
        position_ST[number, : len(row)] = row.positions()
        sees_STT[number, : len(row), : len(row)] = row.sees()
    return position_ST, sees_STT
