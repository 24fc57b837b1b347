"""The keys and values of a batch, in slots that all rows share.

A decoded token's keys go to the same slot in every row, so that writing them is one slice and not a scatter. The
price is gaps: rows whose part of a block is shorter leave slots unused, and these are masked. Gaps are squeezed out
once a turn, when rows are carried over into the next turn's cache. A worked example, two rows, after one turn:

    slot      0  1  2  3  4 | 5  6  7
    row 0     a  b  c  .  . | x  y  z       prompt abc, response xyz
    row 1     d  e  f  g  h | u  .  .       prompt defgh, response u
    blocks    start 0: (3, 5) | start 5: (3, 1)

    carried over:  row 0  a b c x y z,  row 1  d e f g h u:  one block, start 0: (6, 6)

Tensor suffixes: B rows, H key-value heads, T slots, D width of a head, R rows asked for.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class CacheShape:
    """What a model keeps for a token."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device


@dataclass
class _Block:
    """Slots from `start`; row b holds `counts[b]` tokens in the first of them."""

    start: int
    counts: np.ndarray


class KVCache:
    """Keys and values of a batch of rows, and which slots of each row hold a token.

    Attributes:
        buffer: [num_layers, 2 (keys, values), B, H, capacity, D]
        num_slots: Slots in use, the same for all rows.
    """

    def __init__(self, shape: CacheShape, num_rows: int, capacity: int) -> None:
        """Allocate, without clearing: every slot of a block is written before it is read."""
        self.shape = shape
        self.capacity = capacity
        self.num_slots = 0
        self._blocks: list[_Block] = []
        self.buffer = torch.empty(
            (shape.num_layers, 2, num_rows, shape.num_kv_heads, capacity, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )

    @property
    def num_rows(self) -> int:
        """Rows, in use or not."""
        return self.buffer.shape[2]

    def keys(self, layer: int, num_rows: int | None = None) -> Tensor:
        """Keys of the first rows in the slots in use, [B, H, T, D]; a view."""
        return self.buffer[layer, 0, :num_rows, :, : self.num_slots]

    def values(self, layer: int, num_rows: int | None = None) -> Tensor:
        """Values of the first rows in the slots in use, [B, H, T, D]; a view."""
        return self.buffer[layer, 1, :num_rows, :, : self.num_slots]

    def append_block(self, counts_B: np.ndarray, width: int) -> slice:
        """Take `width` slots into use, of which row b holds tokens in the first `counts_B[b]`.

        Returns:
            The slots; the caller writes all of them, in every row.
        """
        start = self.num_slots
        assert start + width <= self.capacity, (start, width, self.capacity)
        assert counts_B.shape == (self.num_rows,)
        self._blocks.append(_Block(start, counts_B))
        self.num_slots = start + width
        return slice(start, self.num_slots)

    def append_column(self) -> int:
        """Take one more slot into use, for a decoded token; `close_columns` says later who holds one there."""
        self.num_slots += 1
        assert self.num_slots <= self.capacity
        return self.num_slots - 1

    def close_columns(self, start: int, counts_B: np.ndarray) -> None:
        """Make the columns from slot `start` a block, of which row b holds the first `counts_B[b]`."""
        self._blocks.append(_Block(start, counts_B))

    def bias(self) -> Tensor:
        """What to add to attention scores: 0 where a slot holds a token or is still free, -inf in gaps.

        Returns:
            [B, capacity], of the cache's type.
        """
        bias_BT = np.zeros((self.num_rows, self.capacity), dtype=np.float32)
        ends = [block.start for block in self._blocks[1:]] + [self.num_slots]
        for block, end in zip(self._blocks, ends, strict=True):
            gaps = np.arange(end - block.start) >= block.counts[:, None]
            bias_BT[:, block.start : end][gaps] = -np.inf
        return torch.from_numpy(bias_BT).to(self.shape.device, self.shape.dtype)

    def carried_over(self, rows_R: np.ndarray, num_free: int) -> "KVCache":
        """Copy rows into a new cache, gaps squeezed out.

        Args:
            rows_R: Row numbers; -1 for a row that starts empty.
            num_free: Slots to leave free behind them.
        """
        counts_R, slots_RT = self._tokens(rows_R)
        width = slots_RT.shape[1]
        carried = KVCache(self.shape, len(rows_R), width + num_free)
        slots = carried.append_block(counts_R, width)
        if width:
            heads = np.arange(self.shape.num_kv_heads)
            rows_RH = np.maximum(rows_R, 0)[:, None] * self.shape.num_kv_heads + heads
            index = rows_RH[:, :, None] * self.capacity + slots_RT[:, None, :]
            index_t = torch.from_numpy(index.ravel()).to(self.shape.device)
            for target, source in self._planes(carried):
                vectors = source.view(-1, self.shape.head_dim).index_select(0, index_t)
                target[:, :, slots] = vectors.view(*index.shape, self.shape.head_dim)
        return carried

    def expanded(self, rows_R: np.ndarray, num_free: int) -> "KVCache":
        """Copy rows, some of them several times, into a new cache, slots as they are."""
        expanded = KVCache(self.shape, len(rows_R), self.num_slots + num_free)
        expanded.num_slots = self.num_slots
        expanded._blocks = [_Block(block.start, block.counts[rows_R]) for block in self._blocks]
        index = torch.from_numpy(rows_R).to(self.shape.device)
        for target, source in self._planes(expanded):
            target[:, :, : self.num_slots] = source[:, :, : self.num_slots].index_select(0, index)
        return expanded

    def swap_rows(self, rows: np.ndarray, others: np.ndarray) -> None:
        """Exchange rows pairwise; no row may be named twice."""
        pair = np.concatenate([rows, others])
        swapped = np.concatenate([others, rows])
        target, source = (torch.from_numpy(index).to(self.shape.device) for index in (pair, swapped))
        used = self.buffer[:, :, :, :, : self.num_slots]
        used[:, :, target] = used[:, :, source]
        for block in self._blocks:
            block.counts[pair] = block.counts[swapped]

    def _planes(self, other: "KVCache") -> list[tuple[Tensor, Tensor]]:
        """Pairs of [B, H, T, D]: the other cache's and this one's keys or values of a layer."""
        return list(zip(other.buffer.flatten(0, 1), self.buffer.flatten(0, 1), strict=True))

    def _tokens(self, rows_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count the tokens of rows and list their slots, [R] and [R, longest]; slot 0 behind a shorter row's end."""
        is_kept_R = rows_R >= 0
        counts = [np.where(is_kept_R, block.counts[rows_R], 0) for block in self._blocks]
        counts_R = sum(counts, start=np.zeros(len(rows_R), dtype=np.int64))
        slots_RT = np.zeros((len(rows_R), int(counts_R.max(initial=0))), dtype=np.int64)
        first_R = np.zeros(len(rows_R), dtype=np.int64)
        for block, block_counts_R in zip(self._blocks, counts, strict=True):
            offsets_RT = np.arange(slots_RT.shape[1]) - first_R[:, None]
            is_here = (offsets_RT >= 0) & (offsets_RT < block_counts_R[:, None])
            slots_RT[is_here] = (block.start + offsets_RT)[is_here]
            first_R += block_counts_R
        return counts_R, slots_RT
