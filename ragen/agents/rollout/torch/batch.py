"""Mapping of sequences to rows of the cache while a batch is decoded.

Sequences with the same prompt and the same tokens so far share a row: the members of a group start in one row, and with
a policy that writes much the same before it decides, they stay together for half of their tokens. A row is copied when
its sequences diverge, and leaves the batch when the last of them has ended.

    rows of the cache     | in the batch, including dead ones | free | retired |

There is always room: every row, including dead and retired ones, belongs to at least one sequence. Nothing is copied
for an ended sequence, since its tokens are a prefix of its row. If ended sequences need not be kept, their rows are not
retired but overwritten.

Suffixes: B sequences, A rows of the batch.
"""

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.agents.rollout.torch.kv_cache import KVCache

_LEAVING_SHARE = 8
"""Dead rows are removed once at least 1 in this many is dead: moving a row costs about as much as some steps of it."""


class CacheBatch:
    """The active rows of a cache, and the sequences in them.

    Attributes:
        going: Sequences that have not ended, ascending. int64
        rows_B: Row of each sequence, including ended ones if they are kept. int64
        num_rows: Number of rows in the batch, which are the first rows of the cache.
    """

    def __init__(self, cache: KVCache, rows_B: np.ndarray, num_rows: int, keeps_ended: bool) -> None:
        """Start with all sequences, in the rows of their prompts.

        Args:
            cache: Cache with the prompts in its first rows.
            rows_B: Row of each sequence.
            num_rows: Number of distinct prompts.
            keeps_ended: Whether the tokens of ended sequences must stay in their rows.
        """
        self.rows_B = rows_B
        self.going = np.arange(len(rows_B))
        self.num_rows = num_rows
        self._cache = cache
        self._keeps_ended = keeps_ended
        self._num_retired = 0

    def rows_of_going(self, device: torch.device) -> Tensor | None:
        """Return the row of each active sequence, int64; None if it is the identity mapping."""
        rows = self.rows_B[self.going]
        if len(rows) == self.num_rows and (rows == np.arange(self.num_rows)).all():
            return None
        return torch.from_numpy(rows).to(device)

    def advance(self, drawn: np.ndarray, has_ended: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Process the tokens drawn by the active sequences: some sequences end, some diverge.

        Args:
            drawn: Token of each sequence in `going`.
            has_ended: Whether it is the last token of the sequence; must not be true for all of them.

        Returns:
            The next token of each row of the batch, and one of the sequences in that row.
        """
        self.going, drawn = self.going[~has_ended], drawn[~has_ended]
        self._part(drawn)
        self._retire()
        tokens_A = np.zeros(self.num_rows, dtype=np.int64)  # dead rows read token 0, at a valid position
        sequences_A = np.full(self.num_rows, self.going[0])
        rows = self.rows_B[self.going]
        tokens_A[rows], sequences_A[rows] = drawn, self.going
        return tokens_A, sequences_A

    def _part(self, drawn: np.ndarray) -> None:
        """Give every distinct token drawn in a row, except the first, a copy of that row."""
        num_tokens = int(drawn.max()) + 1
        branches, which = np.unique(self.rows_B[self.going] * num_tokens + drawn, return_inverse=True)
        parents = branches // num_tokens
        is_copy = np.concatenate([[False], parents[1:] == parents[:-1]])
        num_copies = int(is_copy.sum())
        if num_copies:
            rows = parents.copy()
            rows[is_copy] = self.num_rows + np.arange(num_copies)
            self._cache.copy_rows(parents[is_copy], rows[is_copy])
            self.rows_B[self.going] = rows[which]
            self.num_rows += num_copies

    def _retire(self) -> None:
        """Move the batch's last rows into the places of dead ones, and dead rows, if kept, to the end of the cache."""
        is_dead = np.ones(self.num_rows, dtype=bool)
        is_dead[self.rows_B[self.going]] = False
        dead = np.flatnonzero(is_dead)
        if len(dead) * _LEAVING_SHARE < self.num_rows or not len(dead):
            return
        self.num_rows -= len(dead)
        sources = self.num_rows + np.flatnonzero(~is_dead[self.num_rows :])
        targets = dead[: len(sources)]
        if self._keeps_ended:
            end = self._cache.num_rows - self._num_retired
            self._num_retired += len(dead)
            sources = np.concatenate([dead, sources])
            targets = np.concatenate([np.arange(end - len(dead), end), targets])
        self._cache.copy_rows(sources, targets)
        moved = np.arange(self._cache.num_rows)
        moved[sources] = targets
        self.rows_B = moved[self.rows_B]
