"""Batches: trajectories split over optimiser steps, segments packed into forward passes.

    trajectories -> split_minibatches -> mini-batches (an optimiser step each; a trajectory is never split)
    segments     -> prefix_rows -> pack -> micro-batches (a forward and backward pass each), by a budget of tokens

Packing only affects memory and speed: gradients are sums over micro-batches.
Legend: S rows of a micro-batch, T tokens of its longest row, P distinct positions of it that predict response tokens,
M response tokens of the segments in its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.learning.learners.data.prefix_rows import PrefixRow, prefix_rows


class TokenContext(Protocol):
    """Tokens that the model sees as one context: a `Segment`, or an example of supervised learning."""

    @property
    def token_ids(self) -> np.ndarray:
        """Prompts and responses in order. int64 [T]"""

    @property
    def response_mask(self) -> np.ndarray:
        """Whether a token belongs to a response. bool [T]"""


class Contexts(Protocol):
    """Contexts whose response tokens are numbered one after the other, such as `ResponseTokens`."""

    @property
    def segments(self) -> Sequence[TokenContext]:
        """The contexts."""

    @property
    def segment_start(self) -> np.ndarray:
        """Index of the first response token of each context. int64"""

    @property
    def images(self) -> ImageTable | None:
        """Images of the contexts, whose tokens have ids of their own there; None if they are of text alone."""


@dataclass(frozen=True)
class MicroBatch:
    """Rows of similar length, padded on the right.

    Attributes:
        token_ids_ST: Token ids, those of images numbered over `images`; 0 after a row's end. int64
        position_ST: Position of each token in its own context; None if that is its position in the row. int64
        end_ST: Where each token's branch ends (`prefix_rows`); None for plain causal attention, under which no real
            token sees the padding. int64
        predictor_P: Positions that predict response tokens, as indices into the flattened [S * T]. int64
        prediction_M: Index of each response token's predicting position among those P. int64
        target_M: Id of each response token. int64
        token_M: Index of each response token among those of the update. int64
        images: The distinct images in the rows; on the CPU.
    """

    token_ids_ST: Tensor
    position_ST: Tensor | None
    end_ST: Tensor | None
    predictor_P: Tensor
    prediction_M: Tensor
    target_M: Tensor
    token_M: Tensor
    images: tuple[Image, ...] = ()

    def sees(self) -> Tensor | None:
        """Return the attention mask, bool [S, T, T], or None for plain causal attention; padding sees itself alone."""
        if self.end_ST is None:
            return None
        place_T = torch.arange(self.end_ST.shape[1], device=self.end_ST.device)
        return (place_T <= place_T[:, None]) & (place_T[:, None] < self.end_ST[:, None])

    def with_targets(self, further_MK: Tensor) -> "MicroBatch":
        """Return a copy that also scores K further tokens at the position of each response token, after all others."""
        prediction_M = torch.cat([self.prediction_M, self.prediction_M.repeat_interleave(further_MK.shape[1])])
        return replace(self, prediction_M=prediction_M, target_M=torch.cat([self.target_M, further_MK.flatten()]))

    def to(self, device: torch.device) -> "MicroBatch":
        """Return a copy on a device."""
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        moved: dict[str, Any] = {name: one.to(device) for name, one in parts.items() if isinstance(one, Tensor)}
        return replace(self, **moved)


def split_minibatches(num_trajectories: int, num_minibatches: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Split trajectories into mini-batches at random.

    Args:
        num_trajectories: Number of trajectories.
        num_minibatches: Requested number of optimiser steps.
        seed: Seed of the update.
        epoch: Index of the pass over the data; each pass has its own split.

    Returns:
        Indices of trajectories, ascending within a mini-batch, each exactly once. Sizes differ by at most one. With
        fewer trajectories than requested mini-batches, every trajectory is a mini-batch of its own.
    """
    generator = np.random.Generator(np.random.PCG64(derive_seed(seed, "deal", epoch)))
    parts = np.array_split(generator.permutation(num_trajectories), max(1, min(num_minibatches, num_trajectories)))
    return [np.sort(part) for part in parts]


def num_steps(num_trajectories: int, config: UpdateConfig) -> int:
    """Return the number of optimiser steps per pass, from `num_minibatches` or `minibatch_trajectories`.

    With E = `minibatch_trajectories` set, it is n / E rounded half up, and at least 1. A remainder of less than E / 2
    makes the mini-batches larger, one of at least E / 2 makes them smaller; nothing is left out.

    Args:
        num_trajectories: n, the number of trajectories with a response token.
        config: Settings of the update.
    """
    size = config.minibatch_trajectories
    return max(1, (2 * num_trajectories + size) // (2 * size)) if size else config.num_minibatches


def pack(lengths: Sequence[int] | np.ndarray, token_budget: int) -> list[np.ndarray]:
    """Pack sequences into rectangles of at most `token_budget` tokens, padding included.

    Args:
        lengths: Number of tokens of each sequence.
        token_budget: Maximum tokens of a rectangle; a longer sequence gets a rectangle of its own.

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


def rectangles(tokens: Contexts, segments: Sequence[int], num_parts: int) -> list[MicroBatch]:
    """Split segments into micro-batches of similar length, shortest first, without sharing prefixes.

    Args:
        tokens: The contexts.
        segments: Indices of the segments.
        num_parts: Number of micro-batches, of equally many segments each; fewer if there are fewer segments.
    """
    ordered = sorted(segments, key=lambda index: len(tokens.segments[index].token_ids))
    size = -(-len(ordered) // num_parts)
    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [_collate(tokens, [_row_of(tokens, index) for index in part]) for part in parts]


def _row_of(tokens: Contexts, index: int) -> PrefixRow:
    token_ids = tokens.segments[index].token_ids
    return PrefixRow(token_ids.tolist(), [(0, np.arange(len(token_ids)))], [(index, 0)])


def micro_batches(
    tokens: Contexts,
    segments: np.ndarray,
    token_budget: int,
    *,
    row_tokens: int = 0,
    rank: int = 0,
    num_ranks: int = 1,
) -> list[MicroBatch]:
    """Pack one rank's share of segments into micro-batches; all ranks get the same number.

    Rows are dealt to ranks by length, longest first, so that shares have similar numbers of tokens. If the model is
    sharded over ranks, all ranks must run every pass together. A rank with fewer micro-batches than another therefore
    gets empty ones, of one token or one image and no response, whose losses and gradients are 0.

    Args:
        tokens: Response tokens of the update.
        segments: Indices of the segments to pack, over all ranks.
        token_budget: Maximum tokens of a micro-batch, padding included.
        row_tokens: Maximum tokens of a row in which distinct segments share a prefix (`prefix_rows`); 0 to share rows
            between identical segments only.
        rank: Rank whose share is packed.
        num_ranks: Number of ranks.
    """
    rows = prefix_rows([segment.token_ids for segment in tokens.segments], segments, min(row_tokens, token_budget))
    lengths = np.array([len(row) for row in rows])
    order = np.argsort(-lengths, kind="stable")
    num_batches = max(len(pack(lengths[order[r::num_ranks]], token_budget)) for r in range(num_ranks))
    share = order[rank::num_ranks]
    batches = [_collate(tokens, [rows[share[i]] for i in chosen]) for chosen in pack(lengths[share], token_budget)]
    return batches + [_empty(tokens.images) for _ in range(num_batches - len(batches))]


def _empty(images: ImageTable | None) -> MicroBatch:
    """Return a micro-batch without a response, in which the same parts of the model run as in others."""
    nothing, shown = torch.empty(0, dtype=torch.int64), images.images[:1] if images else []
    row = images.ids(shown[0], images.num_tokens_of[0]) if images and shown else np.zeros(1, dtype=np.int64)
    token_ids_ST = torch.from_numpy(row)[None]
    return MicroBatch(token_ids_ST, None, None, nothing, nothing, nothing, nothing, tuple(shown))


def _collate(tokens: Contexts, rows: list[PrefixRow]) -> MicroBatch:
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
    position_ST = end_ST = None
    if not all(row.is_plain for row in rows):
        position_ST = torch.zeros((len(rows), width), dtype=torch.int64)
        end_ST = torch.arange(1, width + 1).repeat(len(rows), 1)
        for number, row in enumerate(rows):
            position_ST[number, : len(row)] = torch.from_numpy(row.positions())
            end_ST[number, : len(row)] = torch.from_numpy(row.ends())
    token_ids_ST, images = (token_ids_ST, ()) if tokens.images is None else tokens.images.local(token_ids_ST)
    return MicroBatch(
        token_ids_ST=torch.from_numpy(token_ids_ST),
        position_ST=position_ST,
        end_ST=end_ST,
        predictor_P=torch.from_numpy(predictor_P),
        prediction_M=torch.from_numpy(prediction_M),
        target_M=torch.from_numpy(np.concatenate(targets)),
        token_M=torch.from_numpy(np.concatenate(indices)),
        images=images,
    )
