"""The keys and values of a batch, in slots that all rows share.

A decoded token's keys go to the same slot in every row, so that writing them is a slice assignment and not a scatter.
The price is gaps: rows whose part of a block is shorter leave slots unused, and these are masked. Gaps are removed once
per turn, when the prefixes of rows are carried over into the next turn's cache. Two rows after one turn:

    slot      0  1  2  3  4 | 5  6  7
    row 0     a  b  c  .  . | x  y  z       prompt abc, response xyz
    row 1     d  e  f  g  h | u  -  -       prompt defgh, response u; later slots are not carried over
              block           columns

    carried over, lengths (6, 6):   row 0  a b c x y z    row 1  d e f g h u

Rows are copied when two sequences that were equal so far diverge, and moved when the batch shrinks.

Tensor suffixes: B rows, H key-value heads, T slots, D width of a head, R requested rows.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class CacheShape:
    """Shape, type and device of the keys and values of a token."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device


@dataclass
class _Block:
    """A range of slots from `start`; row b has `counts[b]` tokens in the first of them."""

    start: int
    counts: np.ndarray


class KVCache:
    """Keys and values of a batch of rows, and which slots of each row hold a token.

    Attributes:
        buffer: [num_layers, 2 (keys, values), B, H, capacity, D]
        bias_BT: Bias to add to attention scores: 0 for slots with a token and free slots, -inf for gaps. [B, capacity],
            of the buffer's dtype.
        num_slots: Number of slots in use, the same for all rows.
    """

    def __init__(self, shape: CacheShape, num_rows: int, capacity: int) -> None:
        """Allocate without initialising: every slot of a row is written before it is read."""
        self.shape = shape
        self.num_slots = 0
        self.buffer = torch.empty(
            (shape.num_layers, 2, num_rows, shape.num_kv_heads, capacity, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )
        self.bias_BT = torch.zeros((num_rows, capacity), dtype=shape.dtype, device=shape.device)
        self._blocks: list[_Block] = []
        self._columns: _Block | None = None

    @property
    def num_rows(self) -> int:
        """Number of allocated rows."""
        return self.buffer.shape[2]

    @property
    def capacity(self) -> int:
        """Number of allocated slots."""
        return self.buffer.shape[4]

    def in_use(self, num_rows: int) -> Tensor:
        """Return the keys and values of the first rows in the slots in use, [num_layers, 2, B, H, T, D]; a view."""
        return self.buffer[:, :, :num_rows, :, : self.num_slots]

    def append_block(self, counts_R: np.ndarray, width: int) -> slice:
        """Take `width` slots into use; the first rows have tokens in the first `counts_R` of them.

        Returns:
            The slots; the caller must write all of them, in each of these rows.
        """
        assert self._columns is None, "columns come last"
        slots = slice(self.num_slots, self.num_slots + width)
        assert slots.stop <= self.capacity, (slots, self.capacity)
        counts_B = np.zeros(self.num_rows, dtype=np.int64)
        counts_B[: len(counts_R)] = counts_R
        is_gap = np.arange(width) >= counts_B[:, None]
        self.bias_BT[:, slots].masked_fill_(torch.from_numpy(is_gap).to(self.shape.device), -torch.inf)
        self._blocks.append(_Block(slots.start, counts_B))
        self.num_slots = slots.stop
        return slots

    def append_column(self) -> int:
        """Take one more slot into use, with a token in every row; the caller must write it."""
        assert self.num_slots < self.capacity
        if self._columns is None:
            self._columns = _Block(self.num_slots, np.zeros(self.num_rows, dtype=np.int64))
            self._blocks.append(self._columns)
        self._columns.counts += 1
        self.num_slots += 1
        return self.num_slots - 1

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Copy rows over others, with the semantics of reading all before writing any."""
        rows = self.buffer[:, :, :, :, : self.num_slots].transpose(0, 2)
        last_read = {source: place for place, source in enumerate(sources.tolist())}
        held: dict[int, Tensor] = {}
        # Row by row: copies of long contiguous runs, five times faster on the CPU than indexing with all rows at once.
        for place, (source, target) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
            if last_read.get(target, place) > place:
                held[target] = rows[target].clone()
            rows[target] = held.get(source, rows[source])
        read, written = (torch.from_numpy(index).to(self.shape.device) for index in (sources, targets))
        self.bias_BT[written] = self.bias_BT[read]
        for block in self._blocks:
            block.counts[targets] = block.counts[sources]

    def carried_over(self, rows_R: np.ndarray, lengths_R: np.ndarray, num_rows: int, num_free: int) -> "KVCache":
        """Copy prefixes of rows into the first rows of a new cache, with gaps removed.

        Args:
            rows_R: Row numbers, possibly repeated.
            lengths_R: Number of tokens to copy of each, at most as many as it has; 0 for a row that starts empty.
            num_rows: Rows of the new cache.
            num_free: Slots to leave free after them.
        """
        width = int(lengths_R.max(initial=0))
        carried = KVCache(self.shape, num_rows, width + num_free)
        if width:
            slots = carried.append_block(lengths_R, width)
            heads_RH = rows_R[:, None] * self.shape.num_kv_heads + np.arange(self.shape.num_kv_heads)
            index = heads_RH[:, :, None] * self.capacity + self._slots(rows_R, lengths_R)[:, None]
            vectors = torch.from_numpy(index.ravel()).to(self.shape.device)
            for target, source in zip(carried.buffer.flatten(0, 1), self.buffer.flatten(0, 1), strict=True):
                copied = source.view(-1, self.shape.head_dim).index_select(0, vectors)
                target[: len(rows_R), :, slots] = copied.view(*index.shape, -1)
        return carried

    def _slots(self, rows_R: np.ndarray, lengths_R: np.ndarray) -> np.ndarray:
        """Return the slots of the first tokens of rows, int64 [R, longest]; slot 0 after a row's end."""
        slots_RT = np.zeros((len(rows_R), int(lengths_R.max())), dtype=np.int64)
        places_RT = np.broadcast_to(np.arange(slots_RT.shape[1]), slots_RT.shape)
        first_R = np.zeros(len(rows_R), dtype=np.int64)
        for block in self._blocks:
            ends_R = np.minimum(first_R + block.counts[rows_R], lengths_R)
            is_here = (places_RT >= first_R[:, None]) & (places_RT < ends_R[:, None])
            slots_RT[is_here] = (block.start + places_RT - first_R[:, None])[is_here]
            first_R = ends_R
        return slots_RT
